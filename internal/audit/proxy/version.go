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

// inferVersion derives the version from the changes of each release in nftables mode. No version deletes the table or objects that only
// another version knows (setupNFTables of pkg/proxy/nftables/proxier.go): base chains, mark-for-masquerade and hairpin-connections remain
// after an upgrade or a rollback. Therefore the objects that every start rewrites take precedence.
func (a *nftAudit) inferVersion() VersionRange {
	s := signs{min: 29, max: newestMinor}
	has := func(chain string) bool { return a.chain(chain) != nil }
	s.atMost(29, has("endpoints-check"))
	s.atLeast(30, a.t.Sets["cluster-ips"] != nil || has("cluster-ips-check"))
	if until33, since34 := a.filterForm(); until33 != since34 && s.min >= 30 { // in 1.29 they had the priorities of 1.34
		s.atMost(33, until33)
		s.atLeast(34, since34)
	} else {
		s.atMost(33, has("filter-prerouting") || has("filter-output-post-dnat"))
		s.atLeast(34, has("filter-prerouting-pre-dnat") || has("filter-output-pre-dnat"))
	}
	if until35, since36 := a.masqueradeForm(); until35 != since36 {
		s.atMost(35, until35)
		s.atLeast(36, since36)
	} else {
		s.atMost(35, has("mark-for-masquerade"))
		s.atLeast(36, a.t.Sets["hairpin-connections"] != nil)
	}
	if until36, since37 := a.dispatchForm(); s.min >= 36 && until36 != since37 {
		s.atMost(36, until36)
		s.atLeast(37, since37)
	}
	return s.versions()
}

// filterForm reports which priorities the filter chains have that 1.34 moved. Every start recreates them.
func (a *nftAudit) filterForm() (until33, since34 bool) {
	for _, name := range []string{"filter-input", "filter-forward", "filter-output"} {
		if c := a.chain(name); c != nil && c.Hook != "" {
			until33 = until33 || c.Priority == -110
			since34 = since34 || c.Priority == 0
		}
	}
	return until33, since34
}

// dispatchForm reports the form of the rules for Services with one endpoint and without affinity: in 1.36 a numgen with one entry, from
// 1.37 an address (writeServiceToEndpointDNATs of pkg/proxy/nftables/proxier.go). Every start rewrites them.
func (a *nftAudit) dispatchForm() (until36, since37 bool) {
	for c := range a.all() {
		if kind, _, _ := nftKind(c.Name); kind != "service" && kind != "local" {
			continue
		}
		for _, r := range c.Rules {
			until36 = until36 || len(r.Entries) == 1 && strings.Contains(r.Entries[0].Target, ":")
			since37 = since37 || r.To != ""
		}
	}
	return until36, since37
}

// masqueradeForm reports the form of chain masquerading. Every full sync flushes it first.
func (a *nftAudit) masqueradeForm() (until35, since36 bool) {
	c := a.chain("masquerading")
	if c == nil {
		return false, false
	}
	for _, r := range c.Rules {
		until35 = until35 || r.MarkUnset && r.Verdict == "return" || r.MarkToggle != 0 && !r.Masquerade
		since36 = since36 || r.Masquerade && (r.MarkTest != 0 || r.Other)
	}
	return until35, since36
}
