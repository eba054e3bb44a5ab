package checks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"nodegate/host"
	"nodegate/policy"
)

// iptablesMark: a few kernels refuse ip6tables' MARK target, and with it all of kube-proxy's IPv6 rules.
func iptablesMark() Judgement {
	return Judgement{
		Name: "iptables.mark-regression", Stages: []Stage{Run}, Severity: policy.Warn,
		Detects:  "The kernel is one of those whose ip6tables lost the MARK target.",
		Symptom:  "kube-proxy cannot write IPv6 rules: ip6tables-restore fails with \"MARK revision 0 not supported, missing kernel module?\".",
		How:      "The release is 6.6.57, 6.6.58, 6.11.4, 6.11.5 or Ubuntu's 6.8.0-56, 6.8.0-57 or 5.15.0-127. A judgement changes nothing, so it does not try; a MARK rule that ip6tables-save already prints proves that this kernel takes it, otherwise the answer is unknown.",
		Remedy:   "install the next kernel; to prove it either way: ip6tables -t mangle -N NODEGATE-PROBE; ip6tables -t mangle -A NODEGATE-PROBE -j MARK --set-xmark 0x4000/0x4000; ip6tables -t mangle -F NODEGATE-PROBE; ip6tables -t mangle -X NODEGATE-PROBE",
		TradeOff: "Another kernel needs a reboot.",
		Ref:      "https://github.com/tailscale/tailscale/issues/13863",
		Inspect:  inspectMark,
	}
}

func inspectMark(ctx context.Context, h *host.Host, _ *policy.Policy) (State, error) {
	s := State{Want: "ip6tables takes MARK", Got: "ip6tables takes MARK", Holds: true}
	release, err := h.Kernel.Release()
	if err != nil {
		return s, err
	}
	osID := ""
	if id, ok := h.Fact(ctx, "os.id"); ok {
		osID, _ = id.(string)
	}
	lost, why := markRegression(release, osID)
	s.Evidence = []Evidence{{"uname -r", release + ": " + why}}
	if lost == no {
		return s, nil
	}
	if _, err := h.ReadSysctl("net/ipv6/conf/all/disable_ipv6"); errors.Is(err, fs.ErrNotExist) {
		s.Skip = "this kernel has no IPv6"
		return s, nil
	}
	source, rule, err := standingMark(ctx, h)
	if err != nil {
		return s, err
	}
	if rule == "" {
		return s, fmt.Errorf("kernel %s may refuse ip6tables' MARK (%s); no such rule stands to prove otherwise: probe it with a scratch chain", release, why)
	}
	s.Evidence = append(s.Evidence, Evidence{source, rule})
	return s, nil
}

// standingMark is a MARK rule that the kernel has taken for IPv6.
func standingMark(ctx context.Context, h *host.Host) (source, rule string, err error) {
	err = h.Rules.Dumps(ctx, func(from string, r io.Reader) error {
		if !strings.HasPrefix(from, "ip6tables") {
			return nil
		}
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if rule == "" && strings.HasPrefix(lines.Text(), "-A ") && strings.Contains(lines.Text(), " -j MARK --set-") {
				source, rule = from, lines.Text()
			}
		}
		return lines.Err()
	})
	return source, rule, err
}
