// Package noderules reads kube-proxy's rules of a node and says what a check says of them.
package noderules

import (
	"context"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/proxyrules"
	"nodegate/internal/ruleset"
)

// None is why a problem of kube-proxy's rules does not apply.
const None = "no rules of kube-proxy here"

// Rules is a node's rules of kube-proxy in every backend, judged without the Services. Mode is "" where there are none.
type Rules struct {
	proxyrules.Judgment
	Filters []*ruleset.Table // tables filter with chains of kube-proxy
}

// Reader reads the rules of a node: *host.Host.
type Reader interface {
	Rulesets(ctx context.Context) ([]*ruleset.Set, error)
}

// Read reads and judges the rules of a node.
func Read(ctx context.Context, node Reader, opts proxyrules.Options) (Rules, error) {
	opts.WithoutServices = true
	sets, err := node.Rulesets(ctx)
	if err != nil {
		return Rules{}, err
	}
	live := Rules{Judgment: proxyrules.Judge(sets, opts)}
	for _, t := range ruleset.Tables(sets, "filter") {
		if t.Declares("KUBE-FORWARD") || t.Declares("KUBE-SERVICES") {
			live.Filters = append(live.Filters, t)
		}
	}
	return live, nil
}

// About returns the findings that the beginning of their name, or their chain, puts into one of the given subjects.
func (l Rules) About(subjects ...string) []proxyrules.Finding {
	var found []proxyrules.Finding
	for _, f := range l.Findings {
		if slices.ContainsFunc(subjects, func(s string) bool { return strings.HasPrefix(f.Name, s) || f.Chain == s }) {
			found = append(found, f)
		}
	}
	return found
}

// Lost returns the finding that leaves a table unjudged: the table is missing from the save, or nothing of kube-proxy is in it.
func (l Rules) Lost(table string) (proxyrules.Finding, bool) {
	for _, f := range l.About("kubeproxy.table.") {
		if f.Table == table {
			return f, true
		}
	}
	return proxyrules.Finding{}, false
}

// Evidence returns where a finding is, and the rule there.
func (l Rules) Evidence(f proxyrules.Finding) checks.Evidence {
	program := "iptables"
	switch {
	case l.Mode == "nftables":
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

// Fail makes a state fail for the findings: Got is what they are called, Remedy that of the first one.
func (l Rules) Fail(s *checks.State, findings []proxyrules.Finding) {
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
