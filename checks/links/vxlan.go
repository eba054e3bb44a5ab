package links

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"nodegate/checks"
	"nodegate/checks/noderules"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// vxlanChecksum detects four conditions that are harmless alone and break VXLAN together.
func vxlanChecksum() checks.Problem {
	return checks.Problem{
		Name: "vxlan.checksum", Stages: []checks.Stage{checks.Run}, Severity: policy.Block, Moves: true,
		Detects: "VXLAN packets leave with a wrong UDP checksum: they are masqueraded a second time, and the " +
			"kernel \"updates\" a checksum field that was left empty.",
		Symptom: "Connections from the node to Services succeed only after 1, 3 or 63 seconds; the other node's " +
			"dmesg shows \"UDP: bad checksum. From ... to ...:8472\".",
		How: "Four conditions are met: KUBE-POSTROUTING has the old form with --random-fully; a VXLAN link has no outer checksum; " +
			"tx-checksum-ip-generic is active on it; the kernel lacks the fix (mainline 5.7, stable 5.4.41, 4.19.123, 4.14.181, Ubuntu " +
			"4.15.0-107.108 and 5.4.0-32.36, backported to Red Hat 8; unknown for Debian, Amazon Linux and Red Hat 7 before 5.7).",
		Remedy: "upgrade kube-proxy to 1.16.13, 1.17.9, 1.18.6 or later; otherwise use a kernel with the fix; " +
			"otherwise turn off tx-checksum-ip-generic on the VXLAN link each time it is created",
		TradeOff: "Without the offload, the CPU computes checksums and throughput falls: use it only if the first two are not possible.",
		Ref:      "https://github.com/kubernetes/kubernetes/pull/92035",
		Inspect:  inspectVXLANChecksum,
	}
}

func inspectVXLANChecksum(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	const healthy = "not all four conditions met"
	s := checks.Passing(healthy)
	found, exposed, err := exposedTunnels(ctx, h, &s)
	if err != nil {
		return s, err
	}
	if !found {
		s.Skip = "no VXLAN tunnel"
		return s, nil
	}
	release, err := h.Kernel.Release()
	if err != nil {
		return s, err
	}
	distribution, _ := h.OSRelease() // without it, no backports are assumed
	fixed, why := natChecksumFix(release, distribution["ID"])
	s.Evidence = append(s.Evidence, checks.Seen("uname -r", release+": "+why))
	switch { // if another condition is not met, the rules need not be read
	case exposed == nil:
		s.Got += ": no tunnel without an outer checksum offloads the inner one"
		return s, nil
	case fixed == verdict.Pass:
		s.Got += ": the kernel has the fix"
		return s, nil
	}
	old, err := masqueradedTwice(ctx, h, &s)
	if err != nil {
		return s, err
	}
	if !old {
		s.Got += ": not masqueraded twice"
		return s, nil
	}
	if fixed == verdict.Unknown {
		return s, fmt.Errorf("three of four conditions are met on %s, and %s (kernel %s)", strings.Join(exposed, ", "), why, release)
	}
	s.Differs("all four conditions met on "+strings.Join(exposed, ", "), "")
	var off []string
	for _, link := range exposed {
		off = append(off, "ethtool -K "+link+" tx-checksum-ip-generic off")
	}
	s.Remedy = "upgrade kube-proxy to 1.16.13, 1.17.9, 1.18.6 or later; otherwise use a kernel with the fix; otherwise run `" +
		strings.Join(off, "; ") + "` now and add a link block with offload tx-checksum-ip-generic = false to the policy"
	return s, nil
}

// exposedTunnels returns the VXLAN links without an outer checksum that let the device compute the
// inner one.
func exposedTunnels(ctx context.Context, h *host.Host, s *checks.State) (found bool, exposed []string, err error) {
	links, err := h.Links.List(ctx)
	if err != nil {
		return false, nil, err
	}
	for _, l := range links {
		if l.VXLAN == nil {
			continue
		}
		features, err := h.Links.Features(ctx, l.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since it was listed
		}
		if err != nil {
			return found, exposed, err
		}
		found = true
		offload := features["tx-checksum-ip-generic"]
		s.Evidence = append(s.Evidence, checks.Seen(l.Name, fmt.Sprintf("udpcsum %t, tx-checksum-ip-generic %s", l.VXLAN.UDPCSum, offload)))
		if !l.VXLAN.UDPCSum && offload.Active {
			exposed = append(exposed, l.Name)
		}
	}
	return found, exposed, nil
}

// masqueradedTwice reports whether KUBE-POSTROUTING has the old form with random ports. It returns an
// error if it cannot judge the chain.
func masqueradedTwice(ctx context.Context, h *host.Host, s *checks.State) (bool, error) {
	rep, err := noderules.Read(ctx, h, audit.Options{})
	if err != nil {
		return false, err
	}
	if rep.Mode == "" {
		s.Evidence = append(s.Evidence, checks.Seen("iptables nat KUBE-POSTROUTING", noderules.None))
		return false, nil
	}
	if rep.Mode == "ipvs" {
		return false, errors.New("cannot judge the rules of kube-proxy's IPVS mode; run `iptables-save -t nat | grep KUBE-POSTROUTING`")
	}
	if lost, isLost := rep.Lost("nat"); isLost {
		return false, fmt.Errorf("cannot read KUBE-POSTROUTING: %s", lost.Message)
	}
	for _, f := range rep.About("kubeproxy.masquerade.double-snat") {
		s.Evidence = append(s.Evidence, rep.Evidence(f))
		return true, nil
	}
	for _, f := range rep.About("KUBE-POSTROUTING", "POSTROUTING") {
		switch f.Name {
		case "kubeproxy.jump.missing", "kubeproxy.chain.damaged":
			return false, fmt.Errorf("cannot determine the form of KUBE-POSTROUTING: %s: %s", f.Message, f.Rule)
		}
	}
	s.Evidence = append(s.Evidence, checks.Seen("iptables nat KUBE-POSTROUTING", "masquerades once, or without --random-fully"))
	return false, nil
}

// natChecksumFix reports whether a kernel has (Pass) or lacks (Fail) "netfilter: nat: never update the
// UDP checksum when it's 0", and the reason. The version alone is not enough: distributions backport
// the fix, and if they freeze the version, it does not show backports.
func natChecksumFix(release, osID string) (verdict.Verdict, string) {
	k, err := config.ParseKernelRelease(release)
	if err != nil {
		return verdict.Unknown, err.Error()
	}
	if k.AtLeast(5, 7) {
		return verdict.Pass, "fixed since 5.7"
	}
	series := [2]int{k.Version[0], k.Version[1]}
	if osID == "ubuntu" && k.Version[2] == 0 && k.UbuntuMain() {
		if since, ok := map[[2]int]int{{4, 15}: 107, {5, 4}: 32}[series]; ok {
			if k.ABI >= since {
				return verdict.Pass, fmt.Sprintf("Ubuntu has the fix since %d.%d.0-%d", series[0], series[1], since)
			}
			return verdict.Fail, fmt.Sprintf("Ubuntu has the fix only since %d.%d.0-%d", series[0], series[1], since)
		}
	}
	switch {
	case strings.Contains(k.Rest, "uek"):
		return verdict.Unknown, "it is unknown whether Oracle's own kernel before 5.7 has the fix"
	case strings.Contains(k.Rest, ".el8"):
		return verdict.Pass, "Red Hat backported the fix to 8"
	case strings.Contains(k.Rest, ".el7"):
		return verdict.Unknown, "it is unknown whether Red Hat 7 has the fix"
	}
	switch osID {
	case "ubuntu", "debian", "amzn":
		return verdict.Unknown, "it is unknown which kernels of " + osID + " before 5.7 have the fix"
	}
	if k.Version[2] == 0 {
		return verdict.Unknown, "a release that ends in .0 does not show backports"
	}
	since, ok := map[[2]int]int{{5, 4}: 41, {4, 19}: 123, {4, 14}: 181}[series]
	switch {
	case !ok:
		return verdict.Unknown, fmt.Sprintf("it is unknown whether %d.%d was fixed", series[0], series[1])
	case k.Version[2] >= since:
		return verdict.Pass, fmt.Sprintf("fixed since %d.%d.%d", series[0], series[1], since)
	}
	return verdict.Fail, fmt.Sprintf("fixed only since %d.%d.%d", series[0], series[1], since)
}
