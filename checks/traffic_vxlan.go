package checks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"nodegate/checks/kubeproxy"
	"nodegate/internal/host"
	"nodegate/policy"
)

// vxlanChecksum: four things that are harmless alone break VXLAN together.
func vxlanChecksum() Problem {
	return Problem{
		Name: "vxlan.checksum", Stages: []Stage{Run}, Severity: policy.Block,
		Detects:  "VXLAN packets leave with a wrong UDP checksum: they are masqueraded a second time, and the kernel \"updates\" a checksum that was left out.",
		Symptom:  "The node reaches Services only after 1, 3 or 63 seconds; the peer's dmesg says \"UDP: bad checksum. From ... to ...:8472\".",
		How:      "All of: KUBE-POSTROUTING of the old form with --random-fully; a VXLAN link without outer checksum; tx-checksum-ip-generic active on it; a kernel without the fix (mainline 5.7, stable 5.4.41, 4.19.123, 4.14.181, Ubuntu 4.15.0-107.108 and 5.4.0-32.36, carried back to Red Hat 8; of Debian, Amazon Linux and Red Hat 7 before 5.7 it is not known).",
		Remedy:   "upgrade kube-proxy to 1.16.13, 1.17.9, 1.18.6 or later; else take a kernel with the fix; else turn tx-checksum-ip-generic off on the VXLAN link, whenever it is made again",
		TradeOff: "Without the offload the CPU computes checksums and throughput falls: only where the first two are not possible.",
		Ref:      "https://github.com/kubernetes/kubernetes/pull/92035",
		Inspect:  inspectVXLANChecksum,
	}
}

func inspectVXLANChecksum(ctx context.Context, h *host.Host, _ *policy.Policy) (State, error) {
	const holds = "not all four conditions"
	s := State{Want: holds, Got: holds, Pass: true}
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
	osID := ""
	if id, ok := h.Fact(ctx, "os.id"); ok {
		osID, _ = id.(string)
	}
	fixed, why := natChecksumFix(release, osID)
	s.Evidence = append(s.Evidence, Evidence{"uname -r", release + ": " + why})
	switch { // then the rules need not be read
	case exposed == nil:
		s.Got += ": no tunnel without outer checksum offloads the inner one"
		return s, nil
	case fixed == yes:
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
	if fixed == unknown {
		return s, fmt.Errorf("three of four conditions hold on %s, and %s (kernel %s)", strings.Join(exposed, ", "), why, release)
	}
	s.Pass, s.Got = false, "all four on "+strings.Join(exposed, ", ")
	var off []string
	for _, link := range exposed {
		off = append(off, "ethtool -K "+link+" tx-checksum-ip-generic off")
	}
	s.Remedy = "upgrade kube-proxy to 1.16.13, 1.17.9, 1.18.6 or later; else a kernel with the fix; else put a link block with offload tx-checksum-ip-generic = false into the policy, now: " + strings.Join(off, "; ")
	return s, nil
}

// exposedTunnels is the VXLAN links that leave the checksum out and let the
// device compute inner ones.
func exposedTunnels(ctx context.Context, h *host.Host, s *State) (found bool, exposed []string, err error) {
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
			continue // gone since it was listed
		}
		if err != nil {
			return found, exposed, err
		}
		found = true
		offload := features["tx-checksum-ip-generic"]
		s.Evidence = append(s.Evidence, Evidence{l.Name, fmt.Sprintf("udpcsum %t, tx-checksum-ip-generic %s", l.VXLAN.UDPCSum, offload)})
		if !l.VXLAN.UDPCSum && offload.Active {
			exposed = append(exposed, l.Name)
		}
	}
	return found, exposed, nil
}

// masqueradedTwice tells whether KUBE-POSTROUTING has the old form with random
// ports. It fails where the chain cannot be judged.
func masqueradedTwice(ctx context.Context, h *host.Host, s *State) (bool, error) {
	rep, err := proxyRules(ctx, h, kubeproxy.Options{})
	if err != nil {
		return false, err
	}
	if rep.Mode == "" {
		s.Evidence = append(s.Evidence, Evidence{"iptables nat KUBE-POSTROUTING", noProxyRules})
		return false, nil
	}
	if rep.Mode == "ipvs" {
		return false, errors.New("the rules of kube-proxy's IPVS mode are not judged: look at iptables-save -t nat | grep KUBE-POSTROUTING")
	}
	if lost, isLost := tableLost(rep, "nat"); isLost {
		return false, fmt.Errorf("cannot see KUBE-POSTROUTING: %s", lost.Message)
	}
	for _, f := range proxyFindings(rep, "kubeproxy.masquerade.double-snat") {
		s.Evidence = append(s.Evidence, proxyEvidence(rep.Mode, f))
		return true, nil
	}
	for _, f := range proxyFindings(rep, "KUBE-POSTROUTING", "POSTROUTING") {
		switch f.Name {
		case "kubeproxy.jump.missing", "kubeproxy.chain.undeclared", "kubeproxy.chain.unexpected-rule", "kubeproxy.masquerade.mismatch":
			return false, fmt.Errorf("cannot tell the form of KUBE-POSTROUTING: %s: %s", f.Message, f.Rule)
		}
	}
	s.Evidence = append(s.Evidence, Evidence{"iptables nat KUBE-POSTROUTING", "masquerades once, or without --random-fully"})
	return false, nil
}
