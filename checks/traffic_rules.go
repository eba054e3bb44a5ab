package checks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"nodegate/checks/kubeproxy"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
)

// noProxyRules is why a judgement of kube-proxy's rules does not apply.
const noProxyRules = "no rules of kube-proxy here"

// proxyReport is kube-proxy's rules in every backend, judged. Mode is "" where
// there are none.
type proxyReport struct {
	kubeproxy.Report
	filters []*filterTable // those that hold something of kube-proxy
}

// proxyRules reads and judges. The rules stream from the program that prints
// them.
func proxyRules(ctx context.Context, h *host.Host, opts kubeproxy.Options) (proxyReport, error) {
	var rep proxyReport
	var sets []*ruleset.Set
	err := h.Rules.Dumps(ctx, func(source string, r io.Reader) error {
		filter := newFilterTable(source)
		set, err := ruleset.Parse(source, io.TeeReader(r, filter))
		if errors.Is(err, ruleset.ErrNoRules) {
			return nil // nobody ever used that backend: it prints nothing
		}
		if err != nil {
			return fmt.Errorf("reading what %s printed: %w", source, err)
		}
		sets = append(sets, set)
		_, forward := filter.policy["KUBE-FORWARD"]
		_, services := filter.policy["KUBE-SERVICES"]
		if forward || services {
			rep.filters = append(rep.filters, filter)
		}
		return nil
	})
	if err != nil {
		return rep, err
	}
	rep.Report = kubeproxy.Judge(sets, opts)
	return rep, nil
}

// proxyFindings is the findings that a prefix of their name, or their chain,
// puts into one of the given subjects.
func proxyFindings(rep proxyReport, subjects ...string) []kubeproxy.Finding {
	var found []kubeproxy.Finding
	for _, f := range rep.Findings {
		if slices.ContainsFunc(subjects, func(s string) bool { return strings.HasPrefix(f.Name, s) || f.Chain == s }) {
			found = append(found, f)
		}
	}
	return found
}

// tableLost is the finding that leaves a table unjudged: it is missing from the
// save, or nothing of kube-proxy is in it.
func tableLost(rep proxyReport, table string) (kubeproxy.Finding, bool) {
	for _, f := range proxyFindings(rep, "kubeproxy.table.") {
		if f.Table == table {
			return f, true
		}
	}
	return kubeproxy.Finding{}, false
}

// proxyEvidence is where a finding is, and what stands there.
func proxyEvidence(mode string, f kubeproxy.Finding) Evidence {
	program := "iptables"
	switch {
	case mode == "nftables":
		program = "nft"
	case f.Family == "ip6":
		program = "ip6tables"
	}
	text := f.Message
	if f.Rule != "" {
		text = f.Rule + ": " + f.Message
	}
	return Evidence{strings.Join(strings.Fields(program+" "+f.Table+" "+f.Chain), " "), text}
}

// proxyWrong makes the findings a state's answer: it does not hold, Got is what
// they are called, and the first one's remedy comes first.
func proxyWrong(s *State, mode string, findings []kubeproxy.Finding) {
	var got []string
	for _, f := range findings {
		name := f.Name[strings.LastIndex(f.Name, ".")+1:]
		if f.Family == "ip6" {
			name += " (IPv6)"
		}
		if !slices.Contains(got, name) {
			got = append(got, name)
		}
		s.Evidence = append(s.Evidence, proxyEvidence(mode, f))
	}
	s.Pass, s.Got, s.Remedy = false, strings.Join(got, ", "), findings[0].Remedy
}
