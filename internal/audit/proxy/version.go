package proxy

import (
	"fmt"
	"strings"

	"nodegate/internal/audit/model"
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

// since takes the first sign that shows one form of a change in a release, before it or since it. Of the last, both may count.
func (s *signs) since(minor int, forms ...[2]bool) {
	for i, f := range forms {
		if f[0] != f[1] || i == len(forms)-1 {
			s.atMost(minor-1, f[0])
			s.atLeast(minor, f[1])
			return
		}
	}
}

// inferVersion derives the version from the changes of each release. The absence of a form proves
// an old version only if nothing newer is present, because a missing chain may also be damage.
func (a *audit) inferVersion() VersionRange {
	s, accepts := signs{min: oldestMinor, max: newestMinor}, 0
	for _, t := range []*ruleset.Table{a.nat, a.filter, a.mangle} {
		for i := 0; t != nil && i < len(t.Chains); i++ {
			c := t.Chains[i]
			kind, _ := model.ServiceChain(c.Name)
			at := ""
			if kind == "" {
				at = t.Name + " " + c.Name
			}
			s.atLeast(17, c.Name == "KUBE-PROXY-CANARY" && c.Declared())
			s.atLeast(21, at == "filter KUBE-NODEPORTS" && c.Declared())
			s.atLeast(22, kind == "SVC" && len(c.Rules) > 0 && c.Rules[0].Target == "KUBE-MARK-MASQ")
			s.atMost(23, kind == "XLB")
			s.atLeast(24, kind == "EXT" || kind == "SVL")
			s.atLeast(25, at == "filter KUBE-PROXY-FIREWALL" && c.Declared())
			for i := 0; at != "" && i < len(c.Rules); i++ {
				switch r := &c.Rules[i]; at {
				case "filter FORWARD":
					s.atLeast(20, r.Target == "KUBE-EXTERNAL-SERVICES")
				case "filter INPUT":
					s.atMost(19, r.Target == "KUBE-SERVICES")
				case "filter KUBE-FORWARD":
					s.atLeast(31, strings.Contains(r.Text, "ct_state_invalid_dropped_pkts"))
					if r.Target == "ACCEPT" && r.Has(ruleset.ByState) {
						accepts++
					}
				case "nat KUBE-POSTROUTING":
					s.atLeast(16, r.Target == "MASQUERADE" && r.Has(ruleset.RandomFully))
					s.atMost(18, r.Target == "MASQUERADE" && r.Has(ruleset.ByMark))
				case "nat KUBE-SERVICES":
					s.atMost(21, r.Target == "KUBE-MARK-MASQ")
					s.atMost(18, strings.HasSuffix(r.Comment, ": cluster IP"))
				}
			}
		}
	}
	s.since(23, [2]bool{accepts == 2, accepts == 1})
	if s.min < 17 && a.nat != nil {
		s.atMost(16, true) // no canary, and nothing else that is newer
	}
	return s.versions()
}
