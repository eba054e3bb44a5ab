package proxy

import (
	"strings"

	"nodegate/internal/ruleset"
)

// Reach returns the findings about packets that do not reach kube-proxy's rules, and the mode of
// these rules, "" without any. The Services are judged only if some rule may take their packets.
func Reach(sets []*ruleset.Set, opts Options) (mode string, found []Finding) {
	sure := true
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		if !writes(sets, family) {
			continue
		}
		mode = "iptables or nftables"
		r := newReach(&Judgment{}, sets, &opts, family)
		r.judgeLinks(&opts)
		r.judgeMarked(sets)
		r.judgeReplies()
		sure = sure && r.reachesSurely() && len(r.found) == 0
	}
	if mode == "" || sure {
		return mode, nil
	}
	rep := Judge(sets, opts)
	for _, f := range rep.Findings {
		if strings.HasPrefix(f.Name, "kubeproxy.way.") {
			found = append(found, f)
		}
	}
	return rep.Mode, found
}
