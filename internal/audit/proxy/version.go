package proxy

import (
	"fmt"
	"strings"

	"nodegate/internal/ruleset"
)

// The Kubernetes minor versions whose rules are known: 1.15 to 1.37.
const (
	oldestMinor = 15
	newestMinor = 37
)

// VersionRange is the range of kube-proxy minor versions that write rules of the observed form. Zero means unknown.
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
	return signs{min: max(v.Min, w.Min), max: min(v.Max, w.Max)}.versions()
}

// signs collects the limits on the version that the rules show.
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

// versions returns the versions that the signs allow. New signs take precedence: an old form that
// is left over or was restored manually is a finding, not evidence of a version.
func (s signs) versions() VersionRange {
	if s.max < s.min {
		s.max = newestMinor
	}
	return VersionRange{Min: s.min, Max: s.max}
}

// inferVersion derives the version from the changes of each release. The absence of a form proves
// an old version only if nothing newer is present, because a missing chain may also be damage.
func (a *audit) inferVersion() VersionRange {
	s := signs{min: oldestMinor, max: newestMinor}
	s.atLeast(17, a.nat.Declares("KUBE-PROXY-CANARY") || a.filter.Declares("KUBE-PROXY-CANARY") || a.mangle.Declares("KUBE-PROXY-CANARY"))
	s.atLeast(20, a.jumps(a.filter, "FORWARD", "KUBE-EXTERNAL-SERVICES"))
	s.atLeast(21, a.filter.Declares("KUBE-NODEPORTS"))
	s.atLeast(25, a.filter.Declares("KUBE-PROXY-FIREWALL"))
	s.atMost(19, a.jumps(a.filter, "INPUT", "KUBE-SERVICES"))

	accepts := 0
	for r := range a.filter.Rules("KUBE-FORWARD") {
		s.atLeast(31, strings.Contains(r.Text, "ct_state_invalid_dropped_pkts"))
		if r.Target == "ACCEPT" && r.Has(ruleset.ByState) {
			accepts++
		}
	}
	s.atMost(22, accepts == 2)
	s.atLeast(23, accepts == 1)
	for r := range a.nat.Rules("KUBE-POSTROUTING") {
		s.atLeast(16, r.Target == "MASQUERADE" && r.Has(ruleset.RandomFully))
		s.atMost(18, r.Target == "MASQUERADE" && r.Has(ruleset.ByMark))
	}
	a.chainSigns(&s)
	if s.min < 17 && a.nat != nil {
		s.atMost(16, true) // no canary, and nothing else that is newer
	}
	return s.versions()
}

// chainSigns collects the signs of the Service chains.
func (a *audit) chainSigns(s *signs) {
	if a.nat == nil {
		return
	}
	for _, c := range a.nat.Chains {
		switch kind, _ := serviceChain(c.Name); kind {
		case "EXT", "SVL":
			s.atLeast(24, true)
		case "XLB":
			s.atMost(23, true)
		case "SVC":
			s.atLeast(22, len(c.Rules) > 0 && c.Rules[0].Target == "KUBE-MARK-MASQ")
		}
	}
	for r := range a.nat.Rules("KUBE-SERVICES") {
		s.atMost(21, r.Target == "KUBE-MARK-MASQ")
		s.atMost(18, strings.HasSuffix(r.Comment, ": cluster IP"))
	}
}

// jumps reports whether a chain has a rule with that target.
func (a *audit) jumps(t *ruleset.Table, from, to string) bool {
	for r := range t.Rules(from) {
		if r.Target == to {
			return true
		}
	}
	return false
}
