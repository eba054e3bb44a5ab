package packetfilter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/internal/ruleset"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// iptablesMark detects the few kernels that reject ip6tables' MARK target, and with it all of kube-proxy's IPv6 rules.
func iptablesMark() checks.Problem {
	return checks.Problem{
		Name: "iptables.mark-regression", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Concurrent: true, Moves: true,
		Detects: "The kernel rejects ip6tables' MARK target, as some stable kernels and some of Ubuntu's do.",
		Symptom: "kube-proxy cannot write IPv6 rules: ip6tables-restore fails with \"MARK revision 0 not supported, missing kernel module?\".",
		How: "A MARK rule that ip6tables-save prints proves that the kernel accepts it. Without one, if " +
			"kube-proxy has IPv4 rules, a MARK rule is added to a chain in a temporary network namespace; the " +
			"node's own rules are not touched. If that cannot be tried, the kernel release decides: 6.6.57, " +
			"6.6.58, 6.11.4, 6.11.5 and Ubuntu's 6.8.0-56, 6.8.0-57 and 5.15.0-127 lost the target, and the " +
			"verdict is unknown.",
		Remedy:   "install the next kernel, or the package that provides its xt_mark module",
		TradeOff: "Another kernel requires a reboot.",
		Ref:      "https://github.com/tailscale/tailscale/issues/13863",
		Inspect:  inspectMark,
	}
}

func inspectMark(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("ip6tables accepts MARK")
	if _, err := h.ReadSysctl("net/ipv6/conf/all/disable_ipv6"); errors.Is(err, fs.ErrNotExist) {
		s.Skip = "this kernel does not support IPv6"
		return s, nil
	}
	found, err := findMark(ctx, h)
	if err != nil {
		return s, err
	}
	if found.standing.Text != "" {
		s.Evidence = []checks.Evidence{found.standing}
		return s, nil
	}
	untried := errors.New("not tried because kube-proxy has no iptables rules on this node")
	if found.backend != "" {
		rule := []string{"-j", "MARK", "--set-xmark", "0x4000/0x4000"}
		tried := checks.Seen("scratch namespace", found.backend+" -t mangle "+strings.Join(rule, " "))
		rejected, err := h.Rules.Accepts(ctx, found.backend, rule...)
		switch {
		case err != nil:
			untried = err
		case rejected != "":
			tried.Text += ": " + rejected
			s.Differs("rejected", "")
			s.Evidence = []checks.Evidence{tried}
			return s, nil
		default:
			tried.Text += ": accepted"
			s.Evidence = []checks.Evidence{tried}
			return s, nil
		}
	}
	return markByRelease(h, s, untried)
}

// markByRelease judges a kernel that cannot be tried by its release.
func markByRelease(h *host.Host, s checks.State, untried error) (checks.State, error) {
	release, err := h.Kernel.Release()
	if err != nil {
		return s, err
	}
	distribution, _ := h.OSRelease() // without it, no backports are assumed
	lost, why := markRegression(release, distribution["ID"])
	s.Evidence = []checks.Evidence{checks.Seen("uname -r", release+": "+why)}
	if lost == verdict.Pass {
		return s, nil
	}
	return s, fmt.Errorf("kernel %s may reject ip6tables' MARK (%s): %w", release, why, untried)
}

type markFound struct {
	standing checks.Evidence // a MARK rule for IPv6 that the kernel has accepted
	backend  string          // the ip6tables that belongs to the iptables with kube-proxy's rules
}

func findMark(ctx context.Context, h *host.Host) (f markFound, err error) {
	sets, err := h.Rulesets(ctx)
	if err != nil {
		return f, err
	}
	for _, set := range sets {
		program := ruleset.Program(set.Source)
		ipv6 := strings.HasPrefix(program, "ip6")
		for _, s := range set.Saves {
			for _, t := range s.Tables {
				switch {
				case ipv6 && f.standing.Text == "":
					if r := findMarkRule(t); r != nil {
						f.standing = checks.SeenRule(set.Source, r.Text)
					}
				case !ipv6 && f.backend == "" && t.Declares("KUBE-SERVICES"):
					f.backend = "ip6" + strings.TrimPrefix(program, "ip")
				}
			}
		}
	}
	return f, nil
}

// findMarkRule returns a rule whose target is MARK, or nil.
func findMarkRule(t *ruleset.Table) *ruleset.Rule {
	for _, c := range t.Chains {
		for i := range c.Rules {
			if r := &c.Rules[i]; r.Target == "MARK" && r.Extra().SetMark != "" {
				return r
			}
		}
	}
	return nil
}

// markRegression returns Fail for a kernel whose ip6tables lost the MARK target. Ubuntu numbers its cloud kernels
// separately: their verdict is Unknown.
func markRegression(release, osID string) (verdict.Verdict, string) {
	k, err := config.ParseKernelRelease(release)
	if err != nil {
		return verdict.Unknown, err.Error()
	}
	lost := map[[3]int][]int{{6, 8, 0}: {56, 57}, {5, 15, 0}: {127}}[k.Version]
	switch {
	case slices.Contains([][3]int{{6, 6, 57}, {6, 6, 58}, {6, 11, 4}, {6, 11, 5}}, k.Version):
		return verdict.Fail, "stable kernels 6.6.57, 6.6.58, 6.11.4 and 6.11.5 lost the target"
	case osID != "ubuntu" || lost == nil:
		return verdict.Pass, "not a release that lost the target"
	case !k.UbuntuMain():
		return verdict.Unknown, "Ubuntu numbers this kernel separately from 5.15.0-127, 6.8.0-56 and 6.8.0-57, which lost the target"
	case slices.Contains(lost, k.ABI):
		return verdict.Fail, "Ubuntu's 5.15.0-127, 6.8.0-56 and 6.8.0-57 lost the target"
	}
	return verdict.Pass, "not a release that lost the target"
}
