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

// iptablesMark: a few kernels refuse ip6tables' MARK target, and with it all of kube-proxy's IPv6 rules.
func iptablesMark() checks.Problem {
	return checks.Problem{
		Name: "iptables.mark-regression", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Concurrent: true, Moves: true,
		Detects: "The kernel refuses ip6tables' MARK target, as some stable kernels and Ubuntu's do.",
		Symptom: "kube-proxy cannot write IPv6 rules: ip6tables-restore fails with \"MARK revision 0 not supported, missing kernel module?\".",
		How: "A MARK rule that ip6tables-save prints proves that the kernel takes it. Without one, where kube-proxy keeps IPv4 rules: a MARK " +
			"rule is added to a chain " +
			"in a network namespace made for it, which ends with the try; the node's own rules are not touched. Where that cannot be tried, the " +
			"release is looked up: " +
			"6.6.57, 6.6.58, 6.11.4, 6.11.5 and Ubuntu's 6.8.0-56, 6.8.0-57 and 5.15.0-127 lost it, and the answer is unknown.",
		Remedy:   "install the next kernel, or the package that has its xt_mark module",
		TradeOff: "Another kernel needs a reboot.",
		Ref:      "https://github.com/tailscale/tailscale/issues/13863",
		Inspect:  inspectMark,
	}
}

func inspectMark(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("ip6tables takes MARK")
	if _, err := h.ReadSysctl("net/ipv6/conf/all/disable_ipv6"); errors.Is(err, fs.ErrNotExist) {
		s.Skip = "this kernel has no IPv6"
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
	untried := errors.New("kube-proxy keeps no iptables rules here, so it was not tried")
	if found.backend != "" {
		rule := []string{"-j", "MARK", "--set-xmark", "0x4000/0x4000"}
		tried := checks.Seen("scratch namespace", found.backend+" -t mangle "+strings.Join(rule, " "))
		refused, err := h.Rules.Accepts(ctx, found.backend, rule...)
		switch {
		case err != nil:
			untried = err
		case refused != "":
			tried.Text += ": " + refused
			s.Differs("refused", "")
			s.Evidence = []checks.Evidence{tried}
			return s, nil
		default:
			tried.Text += ": taken"
			s.Evidence = []checks.Evidence{tried}
			return s, nil
		}
	}
	return markByRelease(h, s, untried)
}

// markByRelease decides by the version of a kernel that cannot be tried.
func markByRelease(h *host.Host, s checks.State, untried error) (checks.State, error) {
	release, err := h.Kernel.Release()
	if err != nil {
		return s, err
	}
	distribution, _ := h.OSRelease() // without one, no backports are assumed
	lost, why := markRegression(release, distribution["ID"])
	s.Evidence = []checks.Evidence{checks.Seen("uname -r", release+": "+why)}
	if lost == verdict.Pass {
		return s, nil
	}
	return s, fmt.Errorf("kernel %s may refuse ip6tables' MARK (%s): %w", release, why, untried)
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
					if r := setsMark(t); r != nil {
						f.standing = checks.Seen(set.Source, r.Text)
					}
				case !ipv6 && f.backend == "" && t.Declares("KUBE-SERVICES"):
					f.backend = "ip6" + strings.TrimPrefix(program, "ip")
				}
			}
		}
	}
	return f, nil
}

// setsMark returns a rule whose target is MARK, nil if there is none.
func setsMark(t *ruleset.Table) *ruleset.Rule {
	for _, c := range t.Chains {
		for i := range c.Rules {
			if r := &c.Rules[i]; r.Target == "MARK" && r.Extra().SetMark != "" {
				return r
			}
		}
	}
	return nil
}

// markRegression returns Fail for a kernel whose ip6tables lost the MARK target.
// Ubuntu numbers its kernels for clouds separately: Unknown.
func markRegression(release, osID string) (verdict.Verdict, string) {
	k, err := config.ParseKernelRelease(release)
	if err != nil {
		return verdict.Unknown, err.Error()
	}
	lost := map[[3]int][]int{{6, 8, 0}: {56, 57}, {5, 15, 0}: {127}}[k.Version]
	switch {
	case slices.Contains([][3]int{{6, 6, 57}, {6, 6, 58}, {6, 11, 4}, {6, 11, 5}}, k.Version):
		return verdict.Fail, "stable kernels 6.6.57, 6.6.58, 6.11.4 and 6.11.5 lost it"
	case osID != "ubuntu" || lost == nil:
		return verdict.Pass, "not one of those that lost it"
	case !k.UbuntuMain():
		return verdict.Unknown, "Ubuntu numbers this kernel apart from 5.15.0-127, 6.8.0-56 and 6.8.0-57, which lost it"
	case slices.Contains(lost, k.ABI):
		return verdict.Fail, "Ubuntu's 5.15.0-127, 6.8.0-56 and 6.8.0-57 lost it"
	}
	return verdict.Pass, "not one of those that lost it"
}
