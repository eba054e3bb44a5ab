package kubeproxy

import (
	"fmt"
	"strings"
)

// The Kubernetes minor versions whose rules are known: 1.15 to 1.36.
const (
	oldestMinor = 15
	newestMinor = 36
)

// VersionRange is the range of kube-proxy minor versions that write rules of the form seen. Zero means unknown.
type VersionRange struct {
	Min int `json:"min,omitempty"` // minor version: 31 is 1.31
	Max int `json:"max,omitempty"`
}

func (v VersionRange) String() string {
	switch v.Min {
	case 0:
		return "unknown"
	case v.Max:
		return fmt.Sprintf("1.%d", v.Min)
	}
	return fmt.Sprintf("1.%d to 1.%d", v.Min, v.Max)
}

func (v VersionRange) narrow(w VersionRange) VersionRange {
	switch {
	case v.Min == 0:
		return w
	case w.Min == 0:
		return v
	}
	return signs{min: max(v.Min, w.Min), max: min(v.Max, w.Max)}.settle()
}

// signs gathers what the rules say about the version.
type signs struct{ min, max int }

func (s *signs) atLeast(minor int, seen bool) {
	if seen {
		s.min = max(s.min, minor)
	}
}

func (s *signs) atMost(minor int, seen bool) {
	if seen {
		s.max = min(s.max, minor)
	}
}

// settle believes new signs before old ones: an old form left over, or put back by hand, is a finding and not a version.
func (s signs) settle() VersionRange {
	if s.max < s.min {
		s.max = newestMinor
	}
	return VersionRange{Min: s.min, Max: s.max}
}

// inferVersion reads the version from what each release changed. An absence proves an old version only where nothing newer is
// seen: a missing chain may also be damage.
func (a *audit) inferVersion() VersionRange {
	s := signs{min: oldestMinor, max: newestMinor}
	s.atLeast(17, a.nat.declared("KUBE-PROXY-CANARY") || a.filter.declared("KUBE-PROXY-CANARY") || a.mangle.declared("KUBE-PROXY-CANARY"))
	s.atLeast(20, a.jumps(a.filter, "FORWARD", "KUBE-EXTERNAL-SERVICES"))
	s.atLeast(21, a.filter.declared("KUBE-NODEPORTS"))
	s.atLeast(25, a.filter.declared("KUBE-PROXY-FIREWALL"))
	s.atMost(19, a.jumps(a.filter, "INPUT", "KUBE-SERVICES"))

	accepts := 0
	if c := a.filter.chain("KUBE-FORWARD"); c != nil {
		for r := c.first; r != nil; r = r.next {
			s.atLeast(31, strings.Contains(r.text, "ct_state_invalid_dropped_pkts"))
			if r.target == "ACCEPT" && r.has(condState) {
				accepts++
			}
		}
		s.atMost(22, accepts == 2)
		s.atLeast(23, accepts == 1)
	}
	if c := a.nat.chain("KUBE-POSTROUTING"); c != nil {
		for r := c.first; r != nil; r = r.next {
			s.atLeast(16, r.target == "MASQUERADE" && r.has(randomFully))
			s.atMost(18, r.target == "MASQUERADE" && r.has(condMark))
		}
	}
	a.chainSigns(&s)
	if s.min < 17 && a.nat != nil {
		s.atMost(16, true) // no canary, and nothing else newer
	}
	return s.settle()
}

// chainSigns reads the version from the Service chains, and notes them by kind and hash.
func (a *audit) chainSigns(s *signs) {
	if a.nat == nil {
		return
	}
	a.kinds = map[string]map[string]*chain{"SVC": {}, "SVL": {}, "EXT": {}, "FW": {}, "XLB": {}}
	for _, c := range a.nat.order {
		kind, hash := serviceChain(c.name)
		if byHash := a.kinds[kind]; byHash != nil {
			byHash[hash] = c
		}
		switch kind {
		case "EXT", "SVL":
			s.atLeast(24, true)
		case "XLB":
			s.atMost(23, true)
		case "SVC":
			s.atLeast(22, c.first != nil && c.first.target == "KUBE-MARK-MASQ")
		}
	}
	if c := a.nat.chain("KUBE-SERVICES"); c != nil {
		for r := c.first; r != nil; r = r.next {
			s.atMost(21, r.target == "KUBE-MARK-MASQ")
			s.atMost(18, strings.HasSuffix(r.comment, ": cluster IP"))
		}
	}
}

// jumps reports whether a chain has a rule with that target.
func (a *audit) jumps(t *table, from, to string) bool {
	if c := t.chain(from); c != nil {
		for r := c.first; r != nil; r = r.next {
			if r.target == to {
				return true
			}
		}
	}
	return false
}
