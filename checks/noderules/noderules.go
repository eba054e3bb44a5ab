// Package noderules reads kube-proxy's rules on a node and turns findings about them into the state of a check.
package noderules

import (
	"context"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/audit"
	"nodegate/internal/ruleset"
)

// None is the reason for skipping a problem of kube-proxy's rules on a node without them.
const None = "no kube-proxy rules found"

// Rules holds kube-proxy's rules on a node in every backend, judged without the Services. Mode is "" if there are none.
type Rules struct {
	audit.Judgment
	Filters []*ruleset.Table // tables filter with kube-proxy's chains
}

// Reader reads the rules of a node: *host.Host.
type Reader interface {
	Rulesets(ctx context.Context) ([]*ruleset.Set, error)
}

// Read reads and judges the rules of a node.
func Read(ctx context.Context, node Reader, opts audit.Options) (Rules, error) {
	opts.WithoutServices = true
	sets, err := node.Rulesets(ctx)
	if err != nil {
		return Rules{}, err
	}
	live := Rules{Judgment: audit.Judge(sets, opts)}
	for _, t := range ruleset.Tables(sets, "filter") {
		if t.Declares("KUBE-FORWARD") || t.Declares("KUBE-SERVICES") {
			live.Filters = append(live.Filters, t)
		}
	}
	return live, nil
}

// About returns the findings whose name begins with one of the subjects, or whose chain is one of them.
func (l Rules) About(subjects ...string) []audit.Finding {
	var found []audit.Finding
	for _, f := range l.Findings {
		if slices.ContainsFunc(subjects, func(s string) bool { return strings.HasPrefix(f.Name, s) || f.Chain == s }) {
			found = append(found, f)
		}
	}
	return found
}

// Lost returns the finding that prevents judging a table: the table is missing from the save, contains no kube-proxy rules,
// or none of the rules were judged.
func (l Rules) Lost(table string) (audit.Finding, bool) {
	for _, f := range l.About("kubeproxy.table.", "kubeproxy.rules.partial") {
		if f.Table == table || f.Table == "" {
			return f, true
		}
	}
	return audit.Finding{}, false
}

// Evidence returns the location of a finding and its rule.
func (l Rules) Evidence(f audit.Finding) checks.Evidence {
	program := "iptables"
	switch {
	case f.Table == ruleset.KubeProxyTable, strings.Contains(f.Table, " "), f.Table == "" && l.Mode == "nftables": // "inet fw"
		program = "nft"
	case f.Family == ruleset.IPv6:
		program = "ip6tables"
	}
	text := f.Message
	if f.Rule != "" {
		text = f.Rule + ": " + f.Message
	}
	return checks.Seen(strings.Join(strings.Fields(program+" "+f.Table+" "+f.Chain), " "), text)
}

// Fail makes a state fail with the findings: Got lists their short names, and Remedy is the remedy of the first one.
func (l Rules) Fail(s *checks.State, findings []audit.Finding) {
	var got []string
	for _, f := range findings {
		name := f.Name[strings.LastIndex(f.Name, ".")+1:]
		if f.Family == ruleset.IPv6 {
			name += " (IPv6)"
		}
		if !slices.Contains(got, name) {
			got = append(got, name)
		}
		s.Evidence = append(s.Evidence, l.Evidence(f))
	}
	for _, note := range l.Notes {
		s.Evidence = append(s.Evidence, checks.Seen("note", note))
	}
	s.Differs(strings.Join(got, ", "), findings[0].Remedy)
}
