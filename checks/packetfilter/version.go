package packetfilter

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// iptablesVersion: an old iptables cannot write what kube-proxy wants, nor read it.
func iptablesVersion() checks.Problem {
	return checks.Problem{
		Name: "iptables.version", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "The host's iptables is too old for what kube-proxy and kubelet write.",
		Symptom: "Source ports collide under load (no --random-fully before 1.6.2), rule updates of two programs trip over each other (no " +
			"-w before 1.4.20), or iptables-save prints rules that it does not understand.",
		How: "What `iptables --version` prints is below 1.6.2. 1.8.7 and older on nf_tables is noted: beside a 1.8.8 it loses matches " +
			"(iptables.bare-drop).",
		Remedy:   "install the distribution's current iptables; 1.8.8 or later where the kube-proxy image has one",
		TradeOff: "Another iptables may default to another backend (nf_tables from 1.8): change it on a drained node.",
		Ref:      "https://github.com/kubernetes/kubernetes/pull/78547",
		Inspect:  inspectIptablesVersion,
	}
}

func inspectIptablesVersion(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.State{Want: "at least 1.6.2"}
	said, err := h.Kernel.Version(ctx, "iptables")
	if err != nil && strings.Contains(err.Error(), "is not installed") {
		s.Skip = "iptables is not installed: kube-proxy brings its own"
		return s, nil
	}
	if err != nil {
		return s, err
	}
	version, err := parseIptablesVersion(said)
	if err != nil {
		return s, err
	}
	s.Got = fmt.Sprintf("%d.%d.%d", version[0], version[1], version[2])
	s.Evidence = []checks.Evidence{checks.Seen("iptables --version", said)}
	s.Pass = slices.Compare(version[:], []int{1, 6, 2}) >= 0
	switch {
	case slices.Compare(version[:], []int{1, 4, 20}) < 0:
		s.Remedy = "install iptables 1.6.2 or later: this one has neither -w (1.4.20) nor --random-fully (1.6.2)"
	case !s.Pass:
		s.Remedy = "install iptables 1.6.2 or later: this one has no --random-fully"
	case strings.Contains(said, "nf_tables") && slices.Compare(version[:], []int{1, 8, 8}) < 0:
		s.Evidence = append(s.Evidence, checks.Seen("note", "beside a 1.8.8 or later in kubelet's or kube-proxy's image, a rule written back "+
			"loses its mark match (kubernetes#112477)"))
	}
	return s, nil
}

// parseIptablesVersion reads "iptables v1.8.9 (nf_tables)".
func parseIptablesVersion(said string) ([3]int, error) {
	var version [3]int
	m := regexp.MustCompile(`\bv(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?`).FindStringSubmatch(said)
	if m == nil {
		return version, fmt.Errorf("cannot tell the version of iptables from %q", said)
	}
	for i, digits := range m[1:] {
		if digits == "" {
			continue
		}
		n, err := strconv.Atoi(digits)
		if err != nil {
			return version, fmt.Errorf("cannot tell the version of iptables from %q: %w", said, err)
		}
		version[i] = n
	}
	return version, nil
}
