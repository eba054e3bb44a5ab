package replica

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/wire"
)

// units returns the messages that create everything that is kept.
func (r *nftReader) units(c *Capture) ([]Unit, error) {
	var all []Unit
	add := func(part int, messages ...Message) { all = append(all, Unit{Messages: messages, Part: part}) }
	families, list, err := r.list(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETTABLE, 0)
	if err != nil {
		return nil, err
	}
	for i, m := range list { // a table with an owner would end with the socket
		a := attributes(m, tableUserData)
		table := append(attribute(unix.NFTA_TABLE_NAME, a[unix.NFTA_TABLE_NAME]),
			network(unix.NFTA_TABLE_FLAGS, uint32Of(a[unix.NFTA_TABLE_FLAGS])&tableDormant)...)
		if a[tableUserData] != nil {
			table = append(table, attribute(tableUserData, a[tableUserData])...)
		}
		add(-1, Message{unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, families[i], table})
	}
	bound := map[chainID]*nftChain{}
	var kept []*nftChain
	for _, one := range r.chains {
		switch {
		case one.bound:
			bound[one.id] = one
		case r.kept[one.id]:
			kept = append(kept, one)
		}
	}
	// Of base chains with one hook and one priority the newest runs first. The listing follows the order of their tables.
	for _, one := range kept {
		if part := c.addPolicy(one); part < 0 {
			add(-1, one.create(false))
		} else {
			all = append(all, Unit{Messages: []Message{one.create(false)}, Part: part, Without: []Message{one.create(true)}})
		}
	}
	families, list, err = r.list(unix.NFNL_SUBSYS_NFTABLES, getFlowtable, 0)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, err
	}
	for i, m := range list { // without its links: what it offloads is a copy's own matter
		a := attributes(m, flowtableHook)
		add(-1, Message{newFlowtable, unix.NLM_F_CREATE, families[i], slices.Concat(attribute(1, a[1]), attribute(2, a[2]),
			attribute(flowtableHook|unix.NLA_F_NESTED, filter(a[flowtableHook], func(kind int) bool { return kind != flowtableDevs })))})
	}
	families, list, err = r.list(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETOBJ, 0)
	if err != nil {
		return nil, err
	}
	for i, m := range list {
		add(-1, Message{unix.NFT_MSG_NEWOBJ, unix.NLM_F_CREATE, families[i], filter(m, func(kind int) bool { return kind < 5 || kind > 7 })})
	}
	for _, id := range r.setOrder {
		endpoint := chainID{id.family, id.table, strings.Replace(id.name, "affinity-", "endpoint-", 1)}
		if s := r.sets[id]; !s.anonymous && (ServicePort(id.table, id.name) == "" || r.kept[endpoint]) {
			for _, m := range r.createSet(s) { // a long list may be in several transactions
				add(-1, m)
			}
		}
	}
	for _, one := range kept {
		position := 0
		for _, rule := range r.rules[one.id] {
			position++
			if dispatches(one.id.name) && r.leadsOut(one.id, rule) {
				continue
			}
			add(c.addRule(one.id, rule, position), r.createRule(one.id, rule, bound)...)
		}
	}
	return all, nil
}

func (one *nftChain) create(accept bool) Message {
	return Message{unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, one.id.family, filter(one.message, func(kind int) bool {
		switch kind {
		case unix.NFTA_CHAIN_HANDLE, unix.NFTA_CHAIN_USE, unix.NFTA_CHAIN_COUNTERS, unix.NFTA_CHAIN_PAD, 11:
			return false
		}
		return !accept || kind != unix.NFTA_CHAIN_POLICY
	})}
}

func (r *nftReader) createSet(s *nftSet) []Message {
	r.setIDs++
	body := filter(s.message, func(kind int) bool {
		return !slices.Contains([]int{unix.NFTA_SET_ID, unix.NFTA_SET_PAD, 16, 19, 20}, kind)
	})
	all := []Message{{unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, s.id.family, append(body, network(unix.NFTA_SET_ID, r.setIDs)...)}}
	var pending []byte
	flush := func() {
		if len(pending) > 0 {
			all = append(all, Message{unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, s.id.family,
				slices.Concat(text(unix.NFTA_SET_ELEM_LIST_TABLE, s.id.table), text(unix.NFTA_SET_ELEM_LIST_SET, s.id.name),
					network(unix.NFTA_SET_ELEM_LIST_SET_ID, r.setIDs),
					attribute(unix.NFTA_SET_ELEM_LIST_ELEMENTS|unix.NLA_F_NESTED, pending))})
		}
		pending = nil
	}
	for _, e := range r.elements[s.id] {
		if r.leadsOut(s.id, e) {
			continue
		}
		pending = append(append(pending, e...), make([]byte, wire.Align(len(e))-len(e))...)
		if len(pending) > elementMessage {
			flush()
		}
	}
	flush()
	return all
}

// createRule returns a rule's message behind the messages of its anonymous sets and chains.
func (r *nftReader) createRule(chain chainID, rule []byte, bound map[chainID]*nftChain) (all []Message) {
	for target := range jumps(rule) {
		if inner := bound[chainID{chain.family, chain.table, target}]; inner != nil {
			all = append(all, inner.create(false))
			for _, one := range r.rules[inner.id] {
				all = append(all, r.createRule(inner.id, one, bound)...)
			}
		}
	}
	for _, id := range r.used(chain, rule) {
		all = append(all, r.createSet(r.sets[id])...)
	}
	body := filter(rule, func(kind int) bool {
		switch kind {
		case unix.NFTA_RULE_HANDLE, unix.NFTA_RULE_POSITION, unix.NFTA_RULE_PAD, unix.NFTA_RULE_ID, 10, 11:
			return false
		}
		return true
	})
	// The kernel does not dump the protocol that xt matches check: it is the one that the rule compares before.
	if bytes.Contains(rule, []byte("match\x00")) || bytes.Contains(rule, []byte("target\x00")) {
		value := attribute(unix.NFTA_DATA_VALUE, []byte{0})[:5]
		for _, flag := range []uint16{0, unix.NLA_F_NESTED} {
			head := attribute(unix.NFTA_CMP_DATA|flag, make([]byte, 8))[:4]
			if at := bytes.Index(rule, append(head, value[:4]...)); at >= 0 && at+8 < len(rule) {
				body = append(body, attribute(ruleCompat, network(1, uint32(rule[at+8])), network(2, 0))...)
				break
			}
		}
	}
	return append(all, Message{unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE | unix.NLM_F_APPEND, chain.family, body})
}
