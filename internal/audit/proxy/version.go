package proxy

import (
	"fmt"
	"strings"
)

// The Kubernetes minor versions whose rules are known: 1.25 to 1.37.
const (
	oldestMinor = 25
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
	return VersionRange{max(v.Min, w.Min), max(v.Min, w.Min, min(v.Max, w.Max))}
}

// versions returns the releases that write rules of this form.
func (a *audit) versions() VersionRange {
	for r := range a.filter.Rules("KUBE-FORWARD") {
		if strings.Contains(r.Text, "ct_state_invalid_dropped_pkts") {
			return VersionRange{31, newestMinor}
		}
	}
	return VersionRange{oldestMinor, newestMinor}
}

// isOld reports whether a kube-proxy before 1.25 wrote the save: it lacks the chain for source ranges, or drops by KUBE-MARK-DROP.
func (a *audit) isOld() bool {
	drop := a.nat.Chain("KUBE-MARK-DROP")
	return a.filter != nil && !a.filter.Declares("KUBE-PROXY-FIREWALL") || drop != nil && drop.Refs > 0
}
