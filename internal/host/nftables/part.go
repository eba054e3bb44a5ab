package nftables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/activity"
	"nodegate/internal/ruleset"
	"nodegate/internal/ruleset/nftwire"
)

// Part selects the rules and map elements of some Services by their raw messages. Both modes name
// the Service in every rule or element that leads to its chains. It may select too much.
type Part func(raw []byte) bool

// SavePart passes the part of iptables-nft's tables that concerns some Services to read, as Save
// does: kube-proxy's shared chains without the rules of other Services, and every chain to which
// these rules lead. It does not read the other programs' rules.
func SavePart(ctx context.Context, family string, part Part, read func(io.Reader) error) error {
	defer activity.Doing(ctx, "netlink: some chains of iptables-nft, family "+family)()
	c, err := dial(ctx, protocolOf(family))
	if err != nil {
		return err
	}
	defer c.close()
	var text bytes.Buffer
	err = whole(ctx, func() error {
		return team{c}.steady(func() error {
			text.Reset()
			return c.savePart(nftwire.NewSave(family, &text), part)
		})
	})
	if err != nil {
		return err
	}
	return read(&text)
}

type sharedChains map[string]struct{ filtered bool }

// shared returns kube-proxy's chains that are not of one Service. filtered reports whether its rules
// name Services.
func shared() sharedChains {
	return sharedChains{
		"KUBE-SERVICES": {true}, "KUBE-EXTERNAL-SERVICES": {true}, "KUBE-NODEPORTS": {true}, "KUBE-PROXY-FIREWALL": {true},
		"KUBE-FORWARD": {}, "KUBE-POSTROUTING": {}, "KUBE-MARK-MASQ": {}, "KUBE-MARK-DROP": {}, "KUBE-PROXY-CANARY": {},
	}
}

// savePart reads the part once.
func (c *conn) savePart(s *nftwire.Save, part Part) error {
	if err := c.ask(unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP, nil, s.Add); err != nil {
		return err
	}
	rules := map[string][][]byte{} // by table and chain
	for _, t := range s.Tables() {
		if err := c.readReached(s, t.Name, part, rules); err != nil {
			return err
		}
	}
	for _, t := range s.Tables() {
		s.Begin(t)
		for _, chain := range t.Chains {
			s.Of(chain.Name)
			for _, b := range rules[t.Name+" "+chain.Name] {
				if err := s.AddRule(unix.NFT_MSG_NEWRULE, b); err != nil {
					return err
				}
			}
		}
		if err := s.End(); err != nil {
			return err
		}
	}
	return nil
}

// readReached reads the chains of a table that the part's rules reach, and adds these rules.
func (c *conn) readReached(s *nftwire.Save, table string, part Part, rules map[string][][]byte) error {
	own := shared()
	queue := slices.AppendSeq(hooks(), maps.Keys(own))
	for i := 0; i < len(queue); i++ {
		name := queue[i]
		there, err := c.one(unix.NFT_MSG_GETCHAIN, table, name, s.Add)
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		chain := []attribute{called(unix.NFTA_RULE_TABLE, table), called(unix.NFTA_RULE_CHAIN, name)}
		err = c.ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, chain, func(_ int, b []byte) error {
			if !own.includes(name, b, part) {
				return nil
			}
			rules[table+" "+name] = append(rules[table+" "+name], bytes.Clone(b))
			for _, to := range jumps(b) {
				if !slices.Contains(queue, to) {
					queue = append(queue, to)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// hooks returns the names of iptables' base chains.
func hooks() []string { return []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"} }

// includes reports whether a rule belongs to the part. Rules of other programs are not judged in one.
func (own sharedChains) includes(chain string, rule []byte, part Part) bool {
	switch o, is := own[chain]; {
	case is && o.filtered:
		return part(rule) || bytes.Contains(rule, []byte("KUBE-NODEPORTS\x00"))
	case slices.Contains(hooks(), chain):
		return slices.ContainsFunc(jumps(rule), func(to string) bool { _, is := own[to]; return is })
	}
	return true
}

// one requests one object of a table by its name. It returns false if the object does not exist.
func (c *conn) one(request uint16, table, name string, add func(int, []byte) error) (there bool, err error) {
	about := []attribute{called(unix.NFTA_CHAIN_TABLE, table), called(nameOf(request), name)}
	err = c.ask(request, unix.NLM_F_ACK, about, add)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

func nameOf(request uint16) uint16 {
	if request == unix.NFT_MSG_GETSET {
		return unix.NFTA_SET_NAME
	}
	return unix.NFTA_CHAIN_NAME
}

// jumps returns the names of kube-proxy's chains that a message of iptables-nft contains.
func jumps(b []byte) []string {
	var names []string
	for {
		i := bytes.Index(b, []byte("KUBE-"))
		if i < 0 {
			return names
		}
		b = b[i:]
		end := bytes.IndexFunc(b, func(r rune) bool { return r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') })
		if end < 0 {
			return names
		}
		if b[end] == 0 { // a comment may mention one too
			names = append(names, string(b[:end]))
		}
		b = b[end:]
	}
}

// ReadPart returns the part of kube-proxy's table that concerns some Services, as Read does: the
// base chains, the maps without the elements of other Services, and every chain to which these
// lead. Sets of clients (session affinity) stay empty.
func ReadPart(ctx context.Context, family string, part Part) (*ruleset.NFTTable, error) {
	defer activity.Doing(ctx, "netlink: a part of table "+family+" "+ruleset.KubeProxyTable)()
	c, err := dial(ctx, protocolOf(family))
	if err != nil {
		return nil, err
	}
	defer c.close()
	var t *ruleset.NFTTable
	err = whole(ctx, func() error {
		return team{c}.steady(func() (err error) {
			t, err = c.tablePart(family, part)
			return err
		})
	})
	return t, err
}

// proxyMaps returns kube-proxy's maps and sets of every version. by reports whether each element names
// its Service. Services in a map that is missing here would be missing in the part, and all rules
// would be read.
func proxyMaps() []struct {
	name string
	by   bool
} {
	return []struct {
		name string
		by   bool
	}{
		{"service-ips", true}, {"service-nodeports", true}, {"no-endpoint-services", true}, {"no-endpoint-nodeports", true},
		{"firewall-ips", true}, {"cluster-ips", false}, {"nodeport-ips", false}, {"hairpin-connections", false},
	}
}

// bases returns kube-proxy's base chains of every version in nftables mode, from which jumps lead to
// its other chains.
func bases() []string {
	return []string{
		"nat-prerouting", "nat-output", "nat-postrouting", "filter-prerouting", "filter-prerouting-pre-dnat", "filter-output-pre-dnat",
		"filter-input", "filter-forward", "filter-output", "filter-output-post-dnat",
	}
}

// tablePart reads the part once.
func (c *conn) tablePart(family string, part Part) (*ruleset.NFTTable, error) {
	const table = ruleset.KubeProxyTable
	there, err := c.oneTable(table)
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, fmt.Errorf("no table %s %s: %w", family, table, fs.ErrNotExist)
	}
	d := nftwire.New(family)
	seen, ofRules := map[string]bool{}, setNames()
	set := func(name string, elements bool, keep func([]byte) bool) error {
		if seen["@"+name] {
			return nil
		}
		seen["@"+name] = true
		there, err := c.one(unix.NFT_MSG_GETSET, table, name, d.Add)
		if err != nil || !there || !elements {
			return err
		}
		d.Keep = keep
		of := []attribute{called(unix.NFTA_SET_ELEM_LIST_TABLE, table), called(unix.NFTA_SET_ELEM_LIST_SET, name)}
		err = c.ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, of, d.Add)
		d.Keep = nil
		return err
	}
	for _, m := range proxyMaps() {
		keep := part
		if !m.by {
			keep = nil
		}
		if err := set(m.name, true, keep); err != nil {
			return nil, err
		}
	}
	queue := append(bases(), d.Targets()...)
	for i := 0; i < len(queue); i++ {
		name := queue[i]
		if seen[name] {
			continue
		}
		seen[name] = true
		there, err := c.one(unix.NFT_MSG_GETCHAIN, table, name, d.Add)
		if err != nil {
			return nil, err
		}
		if !there {
			continue
		}
		var raw [][]byte
		chain := []attribute{called(unix.NFTA_RULE_TABLE, table), called(unix.NFTA_RULE_CHAIN, name)}
		err = c.ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, chain, func(_ int, b []byte) error {
			raw = append(raw, bytes.Clone(b))
			return nil
		})
		if err != nil {
			return nil, err
		}
		rules := d.Rules()
		rules.Of = name
		for _, b := range raw {
			for _, found := range ofRules.FindAllSubmatch(b, -1) {
				if err := set(string(found[1]), found[1][0] == '_', nil); err != nil {
					return nil, err
				}
			}
			if err := rules.Add(unix.NFT_MSG_NEWRULE, b); err != nil {
				return nil, err
			}
		}
		queue = append(queue, d.TargetsOf(name)...)
	}
	return d.Table()
}

// oneTable reports whether a table exists.
func (c *conn) oneTable(name string) (bool, error) {
	of := []attribute{called(unix.NFTA_TABLE_NAME, name)}
	err := c.ask(unix.NFT_MSG_GETTABLE, unix.NLM_F_ACK, of, func(int, []byte) error { return nil })
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// setNames matches the names of sets that belong to one rule or to one endpoint.
func setNames() *regexp.Regexp {
	return regexp.MustCompile(`(__(?:map|set)[0-9]+|affinity-[^\x00]+)\x00`)
}
