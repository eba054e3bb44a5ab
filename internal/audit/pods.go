package audit

import (
	"cmp"

	"nodegate/internal/audit/path"
	"nodegate/internal/ruleset"
)

// PodsLost walks new packets from Pods to other machines. It returns the step that drops them, if they are certainly lost, with their
// share if it drops only some: "TCP ", "1 % of TCP ". ways are the ways of a packet whose link and protocol are not known.
func PodsLost(sets []*ruleset.Set, family string, links []string) (step path.Step, share string, ways []path.Way, lost bool) {
	rules := path.New(sets, family, path.Node{Elsewhere: path.NotOfPods})
	p := path.Packet{State: path.StateNew}
	ways = rules.Forwarded(p)
	for _, link := range append([]string{""}, path.PodLinks(sets, family, links)...) {
		p.In = link
		for _, loss := range rules.Losses(p) {
			if loss.Way.Open != nil {
				continue
			}
			what := loss.Protocol
			if loss.Way.Chance < 0.999 {
				what = path.Percent(loss.Way.Chance) + " of " + cmp.Or(what, "the packets")
			}
			if what != "" {
				what += " "
			}
			return loss.Step, what, ways, true
		}
	}
	return path.Step{}, "", ways, false
}

// AcceptedBy returns the rule of FORWARD that accepts, or may accept, the packets of Pods, or the policy.
func AcceptedBy(ways []path.Way, source, forwardPolicy string) string {
	for _, w := range ways {
		for _, step := range w.Steps {
			if w.End == path.Forwarded && step.Hook == path.Forward && step.Table == "filter" && step.Source == source &&
				step.Effect == path.Accepts {
				return step.Rule
			}
		}
	}
	return ":FORWARD " + forwardPolicy
}
