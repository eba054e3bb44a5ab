package proxy

import (
	"strconv"
	"strings"

	"nodegate/internal/ruleset"
)

// judgeMasquerade checks that KUBE-MARK-MASQ sets a bit, KUBE-POSTROUTING masquerades packets with that bit, and KUBE-FORWARD accepts
// them. The bit is 1 << masqueradeBit. It is read from KUBE-MARK-MASQ, and the other rules must use the same bit.
func (a *audit) judgeMasquerade() {
	if a.nat == nil {
		return
	}
	if c := a.chain(a.nat, "KUBE-MARK-MASQ"); c == nil {
		if a.nat.Declares("KUBE-POSTROUTING") {
			a.out.Add(Finding{Name: "kubeproxy.masquerade.mark", Family: a.save.Family, Table: "nat", Chain: "KUBE-MARK-MASQ",
				Message: "table nat has no chain KUBE-MARK-MASQ"})
		}
	} else if !c.blamed {
		a.mark = a.judgeMark(c)
	}
	if c := a.chain(a.nat, "KUBE-POSTROUTING"); c != nil && !c.blamed {
		a.judgePostrouting(c)
	} else if c == nil {
		a.out.Add(Finding{Name: "kubeproxy.masquerade.postrouting", Family: a.save.Family, Table: "nat", Chain: "KUBE-POSTROUTING",
			Message: "table nat has no chain KUBE-POSTROUTING"})
	}
}

// judgeMark returns the bit that KUBE-MARK-MASQ sets, or 0.
func (a *audit) judgeMark(c *chain) uint64 {
	const name = "kubeproxy.masquerade.mark"
	if len(c.Rules) == 0 {
		a.addFinding(name, "nat", c, nil, nil, "KUBE-MARK-MASQ has no rules: no packet is masqueraded")
		return 0
	}
	r := &c.Rules[0]
	mark, mask, ok := markMask(r.Extra().SetMark)
	switch {
	case r.Target != "MARK" || !r.Always() || !ok || mark == 0 || mark&(mark-1) != 0 || mask != mark:
		a.addFinding(name, "nat", c, r, nil, "KUBE-MARK-MASQ must set one bit of the mark on every packet")
		return 0
	case len(c.Rules) > 1:
		a.addFinding(name, "nat", c, &c.Rules[1], nil, "KUBE-MARK-MASQ has more than one rule")
		return 0
	}
	return mark
}

// judgePostrouting accepts the form of 1.16.13, 1.17.9, 1.18.6 and later (RETURN unmarked packets, clear the mark, MASQUERADE). It
// recognises the old form (MASQUERADE marked packets), which masquerades a tunnelled packet again with a random port: kubernetes#92035.
func (a *audit) judgePostrouting(c *chain) {
	const name = "kubeproxy.masquerade.postrouting"
	var unmarked, clear, masquerade *ruleset.Rule
	for i := range c.Rules {
		r := &c.Rules[i]
		switch {
		case r.Target == "RETURN" && r.Has(ruleset.ByMark|ruleset.NotMark) && unmarked == nil:
			unmarked = r
		case r.Target == "MARK" && clear == nil: // a second rule would set the bit again
			clear = r
		case r.Target == "MASQUERADE" && masquerade == nil:
			masquerade = r
		default:
			a.addFinding("kubeproxy.chain.unexpected-rule", "nat", c, r, nil, "kube-proxy does not write this rule into KUBE-POSTROUTING")
			return
		}
	}
	switch {
	case masquerade == nil:
		a.addFinding(name, "nat", c, nil, nil, "KUBE-POSTROUTING never masquerades")
		return
	case masquerade.Has(ruleset.ByMark) && unmarked == nil && clear == nil:
		a.judgeOldPostrouting(c, masquerade)
		return
	case unmarked == nil:
		a.addFinding(name, "nat", c, masquerade, nil,
			"KUBE-POSTROUTING does not RETURN unmarked packets: it masquerades all traffic that leaves the node")
		return
	case clear == nil:
		a.addFinding(name, "nat", c, masquerade, nil,
			"KUBE-POSTROUTING does not clear the mark: a tunnelled packet is masqueraded a second time")
		return
	case unmarked.Line > clear.Line || clear.Line > masquerade.Line || !masquerade.Always() || !clear.Always():
		a.addFinding(name, "nat", c, masquerade, nil, "the rules of KUBE-POSTROUTING are out of order or have unexpected conditions")
		return
	}
	if a.judgeMarkBit(c, unmarked, unmarked.Extra().Mark) && a.judgeMarkBit(c, clear, clear.Extra().SetMark) &&
		!masquerade.Has(ruleset.RandomFully) {
		a.addFinding("kubeproxy.masquerade.random-fully", "nat", c, masquerade, nil,
			"MASQUERADE without --random-fully: two connections may get the same source port, and one of them waits a second or more")
	}
}

func (a *audit) judgeOldPostrouting(c *chain, masquerade *ruleset.Rule) {
	switch {
	case !a.judgeMarkBit(c, masquerade, masquerade.Extra().Mark):
	case masquerade.Has(ruleset.RandomFully):
		a.addFinding("kubeproxy.masquerade.double-snat", "nat", c, masquerade, nil,
			"the mark stays on the packet: after VXLAN encapsulation it is masqueraded again with a random port, "+
				"which breaks the checksum on kernels without the fix (delays of 1, 3 and 63 s)")
	case a.version.Min >= 16:
		a.addFinding("kubeproxy.masquerade.random-fully", "nat", c, masquerade, nil, "MASQUERADE without --random-fully")
	}
}

// judgeMarkBit compares a rule's bit with the bit of KUBE-MARK-MASQ. It reports whether they agree or cannot be compared.
func (a *audit) judgeMarkBit(c *chain, r *ruleset.Rule, text string) bool {
	mark, mask, ok := markMask(text)
	if a.mark == 0 {
		return true
	}
	if !ok || mark != a.mark || mask != a.mark && mask != 0 {
		a.addFinding("kubeproxy.masquerade.mismatch", "nat", c, r, nil, "KUBE-MARK-MASQ sets %#x, this rule uses %s", a.mark, text)
		a.mark = 0 // report only once
		return false
	}
	return true
}

// markMask splits "0x4000/0x4000".
func markMask(s string) (mark, mask uint64, ok bool) {
	value, maskText, slash := strings.Cut(s, "/")
	mark, err := strconv.ParseUint(value, 0, 32)
	if err != nil {
		return 0, 0, false
	}
	if !slash {
		return mark, 0xffffffff, true
	}
	mask, err = strconv.ParseUint(maskText, 0, 32)
	return mark, mask, err == nil
}
