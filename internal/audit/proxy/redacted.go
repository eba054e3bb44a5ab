package proxy

import (
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"nodegate/internal/audit/model"
	"nodegate/internal/ruleset"
)

// structural matches the findings that need neither names nor addresses.
var structural = regexp.MustCompile(`^kubeproxy\.((rules|table|chain|jump|canary|backend|version)\.|dispatch\.probability$)`)

// judgeText reports that names or addresses of a text were replaced. It returns false if the rules cannot be judged at all: those that
// lead to Services lack the comments that name them.
func (r *Judgment) judgeText(s *ruleset.Save, out *Collector) bool {
	at, why := redacted(s)
	var unnamed *ruleset.Rule
	named := false
	for rule := range s.Table("nat").Rules("KUBE-SERVICES") {
		if strings.HasPrefix(rule.Target, "KUBE-SVC-") {
			unnamed, named = rule, named || rule.Comment != ""
		}
	}
	judged := named || unnamed == nil
	if !judged {
		at, why = unnamed, "the rules lack the comments that name their Services, and were not judged"
	}
	if at != nil {
		r.redacted = true
		out.Add(Finding{Name: "kubeproxy.rules.redacted", Family: s.Family, Line: int(at.Line), Rule: at.Text, Message: why})
	}
	return judged
}

// redacted returns a rule which shows that names or addresses of the input were replaced, and how it shows it. kube-proxy makes the name
// of each chain from a hash of them, so that several wrong ones were replaced, unless right ones are beside them.
func redacted(s *ruleset.Save) (*ruleset.Rule, string) {
	var h model.Hasher
	right := map[string]bool{}            // kinds of chains, and ranges of endpoints
	wrong := map[string][]*ruleset.Rule{} // by the same
	for _, t := range s.Tables {
		for _, c := range t.Chains {
			for i := range c.Rules {
				r := &c.Rules[i]
				if a := r.Source + r.Destination + r.To; !r.Has(ruleset.Unprintable) && strings.Trim(a, "0123456789abcdefABCDEF.:/-[]%") != "" {
					return r, "an address of this rule was replaced"
				}
				if key, hash, parts := chainHash(r, c.Name); key != "" && string(h.Sum16(parts...)) == hash {
					right[key] = true
				} else if key != "" {
					wrong[key] = append(wrong[key], r)
				}
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(wrong)) {
		if !right[key] && (len(wrong[key]) > 1 || key == documentation) {
			return wrong[key][0], "no chain here has the hash of the names and addresses in its rules"
		}
	}
	return nil, ""
}

// documentation stands for the ranges of RFC 5737 and RFC 3849, which no node has.
const documentation = "documentation"

// chainHash returns the hash in the name of a chain, and its input: the Service of a rule that leads there, or an endpoint. The key is
// the kind of the chain, or the range of the endpoint; it is "" for any other rule.
func chainHash(r *ruleset.Rule, chain string) (key, hash string, parts []string) {
	if service, what := model.SplitPortal(r.Comment); what == "cluster IP" {
		kind, hash := serviceChain(r.Target)
		if kind != "SVC" {
			return "", "", nil
		}
		return kind, hash, []string{service, r.Protocol}
	}
	kind, hash := serviceChain(chain)
	to, err := netip.ParseAddrPort(r.To)
	if kind != "SEP" || r.Target != "DNAT" || r.Comment == "" || err != nil || r.Has(ruleset.Unprintable) {
		return "", "", nil
	}
	within, _ := to.Addr().Prefix(to.Addr().BitLen() / 2)
	key = within.String()
	for _, example := range []string{"192.0.2.", "198.51.100.", "203.0.113.", "[2001:db8:"} {
		if strings.HasPrefix(r.To, example) {
			key = documentation
		}
	}
	return key, hash, []string{r.Comment, r.Protocol, r.To}
}
