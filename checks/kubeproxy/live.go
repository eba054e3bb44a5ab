package kubeproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
)

// NoRules is why a judgement of kube-proxy's rules does not apply.
const NoRules = "no rules of kube-proxy here"

// Live is kube-proxy's rules in every backend, judged. Mode is "" where
// there are none.
type Live struct {
	Report
	Filters []*FilterTable // those that hold something of kube-proxy
}

// ReadLive reads and judges. The rules stream from the program that prints
// them.
func ReadLive(ctx context.Context, h *host.Host, opts Options) (Live, error) {
	var rep Live
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
		_, forward := filter.Policy["KUBE-FORWARD"]
		_, services := filter.Policy["KUBE-SERVICES"]
		if forward || services {
			rep.Filters = append(rep.Filters, filter)
		}
		return nil
	})
	if err != nil {
		return rep, err
	}
	rep.Report = Judge(sets, opts)
	return rep, nil
}

// LiveFindings is the findings that a prefix of their name, or their chain,
// puts into one of the given subjects.
func LiveFindings(rep Live, subjects ...string) []Finding {
	var found []Finding
	for _, f := range rep.Findings {
		if slices.ContainsFunc(subjects, func(s string) bool { return strings.HasPrefix(f.Name, s) || f.Chain == s }) {
			found = append(found, f)
		}
	}
	return found
}

// TableLost is the finding that leaves a table unjudged: it is missing from the
// save, or nothing of kube-proxy is in it.
func TableLost(rep Live, table string) (Finding, bool) {
	for _, f := range LiveFindings(rep, "kubeproxy.table.") {
		if f.Table == table {
			return f, true
		}
	}
	return Finding{}, false
}

// LiveEvidence is where a finding is, and what stands there.
func LiveEvidence(mode string, f Finding) checks.Evidence {
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
	return checks.Seen(strings.Join(strings.Fields(program+" "+f.Table+" "+f.Chain), " "), text)
}

// LiveWrong makes the findings a state's answer: it does not hold, Got is what
// they are called, and the first one's remedy comes first.
func LiveWrong(s *checks.State, mode string, findings []Finding) {
	var got []string
	for _, f := range findings {
		name := f.Name[strings.LastIndex(f.Name, ".")+1:]
		if f.Family == "ip6" {
			name += " (IPv6)"
		}
		if !slices.Contains(got, name) {
			got = append(got, name)
		}
		s.Evidence = append(s.Evidence, LiveEvidence(mode, f))
	}
	s.Differs(strings.Join(got, ", "), findings[0].Remedy)
}
