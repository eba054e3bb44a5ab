package packetfilter

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// iptablesVersion detects an iptables that is too old to write and read kube-proxy's rules.
func iptablesVersion() checks.Problem {
	return checks.Problem{
		Name: "iptables.version", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "The host's iptables is too old for the rules that kube-proxy and kubelet write.",
		Symptom: "Source ports collide under load (--random-fully needs 1.6.2), rule updates of two programs " +
			"conflict (-w needs 1.4.20), or iptables-save prints rules that it does not understand.",
		How: "`iptables --version` prints a version below 1.6.2. Version 1.8.7 and older with nf_tables is " +
			"noted: together with 1.8.8 it loses matches (iptables.bare-drop).",
		Remedy:   "install the distribution's current iptables, or 1.8.8 or later if the kube-proxy image has that",
		TradeOff: "Another iptables may default to another backend (nf_tables since 1.8): change it on a drained node.",
		Ref:      "https://github.com/kubernetes/kubernetes/pull/78547",
		Inspect:  inspectIptablesVersion,
	}
}

func inspectIptablesVersion(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.State{Want: "at least 1.6.2"}
	output, err := h.Kernel.Version(ctx, "iptables")
	if err != nil && strings.Contains(err.Error(), "is not installed") {
		s.Skip = "iptables is not installed: kube-proxy uses its own"
		return s, nil
	}
	if err != nil {
		return s, err
	}
	version, err := parseIptablesVersion(output)
	if err != nil {
		return s, err
	}
	s.Got = fmt.Sprintf("%d.%d.%d", version[0], version[1], version[2])
	s.Evidence = []checks.Evidence{checks.Seen("iptables --version", output)}
	s.Pass = slices.Compare(version[:], []int{1, 6, 2}) >= 0
	switch {
	case slices.Compare(version[:], []int{1, 4, 20}) < 0:
		s.Remedy = "install iptables 1.6.2 or later: this version lacks -w (1.4.20) and --random-fully (1.6.2)"
	case !s.Pass:
		s.Remedy = "install iptables 1.6.2 or later: this version lacks --random-fully"
	case strings.Contains(output, "nf_tables") && slices.Compare(version[:], []int{1, 8, 8}) < 0:
		s.Evidence = append(s.Evidence, checks.Seen("note", "if kubelet's or kube-proxy's image has 1.8.8 or later, a rule written back loses "+
			"its mark match (kubernetes#112477)"))
	}
	return s, nil
}

// parseIptablesVersion reads "iptables v1.8.9 (nf_tables)".
func parseIptablesVersion(output string) ([3]int, error) {
	var version [3]int
	m := regexp.MustCompile(`\bv(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?`).FindStringSubmatch(output)
	if m == nil {
		return version, errors.New("iptables --version prints no version")
	}
	for i, digits := range m[1:] {
		if digits == "" {
			continue
		}
		n, err := strconv.Atoi(digits)
		if err != nil {
			return version, fmt.Errorf("iptables --version: %w", err)
		}
		version[i] = n
	}
	return version, nil
}
