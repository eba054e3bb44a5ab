package kubeproxy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
	"nodegate/policy"
)

// syncTime is what kube-proxy has to write its first rules.
const syncTime = 2 * time.Minute

// nftUserData: the nft in kube-proxy's image crashes on what a newer nft has written.
func nftUserData() checks.Problem {
	return checks.Problem{
		Name: "kubeproxy.nft-user-data", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Moves: true,
		Detects: "kube-proxy in nftables mode writes nothing, and sets are there on which an nft before 1.1.2, as in its image, crashes.",
		Symptom: "No Service works on this node; kube-proxy logs \"Failed to list existing sets: failed to run nft: signal: segmentation " +
			"fault\" every few seconds.",
		How: "kube-proxy has run in nftables mode for two minutes and has no table; a set or map of another table says its type by user " +
			"data that nft 1.1.2 and later write. Where kube-proxy has its table of one family only, sets of the other family count.",
		Remedy: "kubectl -n kube-system set image daemonset/kube-proxy kube-proxy=IMAGE, of a release with nft 1.0.6.1 or later; until then " +
			"write \"typeof ip saddr\" for \"type ipv4_addr\" in the sets of the node's own rules",
		TradeOff: "typeof says the same, and every nft reads it.",
		Ref:      "https://github.com/kubernetes/kubernetes/issues/136786",
		Inspect:  inspectUserData,
	}
}

func inspectUserData(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("sets that kube-proxy's nft can read")
	if mode, known := h.Fact(ctx, "kube_proxy.mode"); !known || mode != "nftables" {
		s.Skip = "kube-proxy is not known to be in nftables mode here"
		return s, nil
	}
	age, found, err := proxyAge(h)
	switch {
	case err != nil:
		return s, err
	case !found:
		s.Skip = "kube-proxy does not run here"
		return s, nil
	case age < syncTime:
		s.Skip = "kube-proxy has just been started"
		return s, nil
	}
	sets, err := h.Rulesets(ctx)
	if err != nil {
		return s, err
	}
	others, err := h.Rules.Others(ctx)
	if err != nil {
		return s, err
	}
	for _, set := range others.Unlistable {
		s.Evidence = append(s.Evidence, checks.Seen("nf_tables", set+" was made by nft 1.1.2 or later"))
	}
	if what := crashed(h, sets, others.Unlistable); what != "" {
		s.Differs(fmt.Sprintf("no table %s, which has run for %v", what, age.Truncate(time.Minute)), "")
	}
	return s, nil
}

// crashed returns which table of kube-proxy is not there though it should be, where unlistable sets may be why. kube-proxy asks nft for the
// sets of one family, each for itself. It always serves IPv4, and IPv6 where the node has it (platformCheckSupported of
// cmd/kube-proxy/app/server_linux.go).
func crashed(h *host.Host, sets []*ruleset.Set, unlistable []string) string {
	has := map[string]bool{}
	for _, set := range sets {
		for _, t := range set.NFT {
			has[t.Family] = true
		}
	}
	if len(has) == 0 && len(unlistable) > 0 {
		return "of kube-proxy"
	}
	off, err := h.ReadSysctl("net/ipv6/conf/all/disable_ipv6")
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		of := func(set string) bool { return strings.HasPrefix(set, family+" ") }
		served := family == ruleset.IPv4 || err == nil && off == "0"
		if !has[family] && served && slices.ContainsFunc(unlistable, of) {
			return family + " of kube-proxy"
		}
	}
	return ""
}

// proxyAge returns how long kube-proxy has been running.
func proxyAge(h *host.Host) (age time.Duration, found bool, err error) {
	processes, err := h.Processes()
	if err != nil {
		return 0, false, err
	}
	i := slices.IndexFunc(processes, func(p host.Process) bool { return p.Name == "kube-proxy" })
	if i < 0 {
		return 0, false, nil
	}
	up, err := h.Uptime()
	return up - processes[i].Started, true, err
}
