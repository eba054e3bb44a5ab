package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"nodegate/internal/audit"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// ServiceTree writes the path of a packet to the Services of a report: from their addresses through their chains to the endpoints,
// with the probability of each endpoint.
func ServiceTree(w io.Writer, rep *audit.Judgment) error {
	var b strings.Builder
	for i := range rep.Services {
		if i > 0 {
			b.WriteByte('\n')
		}
		service{&rep.Services[i]}.writeTree(&b)
	}
	for i := range rep.Findings {
		if f := &rep.Findings[i]; f.Service == "" {
			fmt.Fprintf(&b, "\n%s: %s, which concerns every Service\n  %s\n", f.Verdict, f.Name, f.Describe())
		}
	}
	_, err := io.WriteString(w, printableLines(b.String()))
	return err
}

// OneService returns the report with only one Service, its findings and those that concern every Service. The name is ns/name for all
// its ports, or ns/name:port for one port. OneService returns an error if the rules do not contain the Service.
func OneService(rep *audit.Judgment, name string) (*audit.Judgment, error) {
	one := *rep
	one.Services = nil
	var names, ports []string
	whole, port, _ := strings.Cut(name, ":")
	for _, s := range rep.Services {
		ns, svc, _ := audit.SplitServicePort(s.Name)
		names = append(names, ns+"/"+svc)
		if ns+"/"+svc == whole {
			ports = append(ports, s.Name)
		}
		if s.Name == name || ns+"/"+svc == name {
			one.Services = append(one.Services, s)
		}
	}
	if one.Services == nil && !strings.Contains(name, "/") {
		return nil, fmt.Errorf("--service must be NAMESPACE/NAME[:PORT]; %q has no namespace", name)
	}
	if one.Services == nil {
		if ports != nil {
			slices.Sort(ports)
			return nil, fmt.Errorf("no port of %s has the name %q; --service takes one of: %s %s", whole, port, whole,
				strings.Join(slices.Compact(ports), " "))
		}
		slices.Sort(names)
		return nil, fmt.Errorf("the rules have no Service %q.%s", name, policy.Nearest(name, slices.Compact(names)))
	}
	one.Findings = slices.DeleteFunc(slices.Clone(rep.Findings), func(f audit.Finding) bool {
		return !slices.ContainsFunc(one.Services, func(s audit.Service) bool {
			return (f.Service == "" || f.Service == s.Name) && (f.Family == "" || f.Family == s.Family)
		})
	})
	return &one, nil
}

// Verdict returns the worst verdict of a report's Services and findings.
func Verdict(rep *audit.Judgment) verdict.Verdict {
	worst, _ := audit.Worst(rep.Findings)
	for _, s := range rep.Services {
		worst = verdict.Worse(worst, s.Verdict)
	}
	return worst
}

// branch is a line of a tree with the branches below it.
type branch struct {
	text string
	sub  []branch
}

func (s service) writeTree(b *strings.Builder) {
	fmt.Fprintf(b, "%s (%s, %s) %s\n", s.Name, s.Protocol, s.Family, s.verdict())
	writeBranches(b, s.branches(), "")
}

func (s service) branches() []branch {
	var roots []branch
	if s.ClusterIP != "" {
		root := branch{text: "ClusterIP " + s.address()}
		switch {
		case s.Blocked != "":
			root.text += ": " + s.Blocked
		case s.InternalLocal:
			root.sub = s.localBranches()
		default:
			root.sub = s.anyBranches()
		}
		roots = append(roots, root)
	}
	for _, text := range s.external() {
		root := branch{text: text + " (masqueraded: all)", sub: s.anyBranches()}
		if s.ExternalLocal {
			root = branch{text: text + " (policy Local)", sub: []branch{
				{text: "from this node and its pods", sub: s.anyBranches()},
				{text: "from elsewhere", sub: s.localBranches()},
			}}
		}
		roots = append(roots, root)
	}
	return roots
}

func (s service) anyBranches() []branch {
	return chainBranch(s.findChain("SVC", "service-"), s.Endpoints, "no endpoint")
}

func (s service) localBranches() []branch {
	return chainBranch(s.findChain("SVL", "local-"), s.LocalEndpoints, "no endpoint on this node: drop")
}

// findChain returns the Service's first chain of one of these kinds, or "".
func (s service) findChain(kinds ...string) string {
	for _, c := range s.Chains {
		for _, k := range kinds {
			if strings.HasPrefix(c, k) || strings.HasPrefix(c, "KUBE-"+k+"-") {
				return c
			}
		}
	}
	return ""
}

func chainBranch(chain string, endpoints []audit.Endpoint, none string) []branch {
	if len(endpoints) == 0 {
		return []branch{{text: none}}
	}
	node := branch{text: chain}
	for _, e := range endpoints {
		text := fmt.Sprintf("%6.2f %%  %s", 100*e.Chance, e.Address)
		if e.Chain != "" {
			text += "  " + e.Chain
		}
		if e.Line > 1 {
			text += fmt.Sprintf("  (line %d)", e.Line)
		}
		node.sub = append(node.sub, branch{text: text})
	}
	return []branch{node}
}

func writeBranches(b *strings.Builder, list []branch, indent string) {
	for i, n := range list {
		edge, below := "├─ ", "│  "
		if i == len(list)-1 {
			edge, below = "└─ ", "   "
		}
		b.WriteString(indent + edge + n.text + "\n")
		writeBranches(b, n.sub, indent+below)
	}
}
