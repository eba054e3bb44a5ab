package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"nodegate/internal/proxyrules"
	"nodegate/internal/verdict"
)

// AuditDOT writes the graph of Services and endpoints in the language of Graphviz. A Service with a finding is red; an edge to an
// endpoint carries the chance in per cent, a dashed one is for policy Local. Of more than manyServices it has those with a finding
// only, unless all is set.
func AuditDOT(w io.Writer, rep *proxyrules.Judgment, all bool) error {
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, "digraph kubeproxy {\n\trankdir=LR;\n\tnode [shape=box, fontname=monospace];")
	endpoints, left := map[string]bool{}, 0
	for i := range rep.Services {
		s := service{&rep.Services[i]}
		if !all && len(rep.Services) > manyServices && len(s.Findings) == 0 {
			left++
			continue
		}
		id := s.Family + " " + s.Name + " " + s.Protocol
		color := ""
		if s.Verdict == verdict.Fail || s.Verdict == verdict.Unknown {
			color = ", color=red"
		}
		fmt.Fprintf(b, "\t%s [label=%s%s];\n", quoteDOT(id), quoteDOT(s.Name+"\n"+s.address()+"\n"+s.also()), color)
		for _, list := range []struct {
			endpoints []proxyrules.Endpoint
			style     string
		}{{s.Endpoints, ""}, {s.LocalEndpoints, ", style=dashed"}} {
			for _, e := range list.endpoints {
				if !endpoints[e.Address] {
					endpoints[e.Address] = true
					fmt.Fprintf(b, "\t%s [shape=ellipse];\n", quoteDOT(e.Address))
				}
				fmt.Fprintf(b, "\t%s -> %s [label=\"%.2f %%\"%s];\n", quoteDOT(id), quoteDOT(e.Address), 100*e.Chance, list.style)
			}
		}
	}
	if left > 0 {
		fmt.Fprintf(b, "\tlabel=\"%d Service ports without a finding are not drawn; -v draws them\";\n", left)
	}
	fmt.Fprintln(b, "}")
	return b.Flush()
}

// quoteDOT quotes an identifier or label; a line feed becomes DOT's own.
func quoteDOT(s string) string {
	parts := strings.Split(s, "\n")
	for i, p := range parts {
		parts[i] = strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(printable(p))
	}
	return `"` + strings.Join(parts, `\n`) + `"`
}
