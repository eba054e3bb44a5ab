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

// syncTime bounds the time that kube-proxy needs to write its first rules.
const syncTime = 2 * time.Minute

// nftUserData detects sets from a newer nft on which the nft in kube-proxy's image crashes.
func nftUserData() checks.Problem {
	return checks.Problem{
		Name: "kubeproxy.nft-user-data", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Moves: true,
		Detects: "kube-proxy in nftables mode writes no rules, and the node has sets on which an nft before 1.1.2, as in its image, crashes.",
		Symptom: "No Service works on this node; kube-proxy logs \"Failed to list existing sets: failed to run nft: signal: segmentation " +
			"fault\" every few seconds.",
		How: "kube-proxy has run in nftables mode for two minutes without creating its table, and a set or map of another table gives its type " +
			"as user data that nft 1.1.2 and later write. If kube-proxy has its table for one family only, sets of the other family count.",
		Remedy: "run `kubectl -n kube-system set image daemonset/kube-proxy kube-proxy=IMAGE` with a release that has nft 1.0.6.1 or later; " +
			"until then, write \"typeof ip saddr\" instead of \"type ipv4_addr\" in the sets of the node's own rules",
		TradeOff: "None: typeof has the same meaning, and every nft can read it.",
		Ref:      "https://github.com/kubernetes/kubernetes/issues/136786",
		Inspect:  inspectUserData,
	}
}

func inspectUserData(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("sets that kube-proxy's nft can read")
	if mode, known := h.Fact(ctx, "kube_proxy.mode"); !known || mode != "nftables" {
		s.Skip = "kube-proxy is not known to run in nftables mode"
		return s, nil
	}
	age, found, err := proxyAge(h)
	switch {
	case err != nil:
		return s, err
	case !found:
		s.Skip = "kube-proxy is not running"
		return s, nil
	case age < syncTime:
		s.Skip = "kube-proxy has just started"
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
		s.Evidence = append(s.Evidence, checks.Seen("nf_tables", set+" was created by nft 1.1.2 or later"))
	}
	if table := missingTable(h, sets, others.Unlistable); table != "" {
		s.Differs(fmt.Sprintf("kube-proxy has run for %v without %s", age.Truncate(time.Minute), table), "")
	}
	return s, nil
}

// missingTable describes the table that kube-proxy should have and lacks, if unlistable sets may be the reason; "" if not.
// kube-proxy lists the sets of each family separately. It always serves IPv4, and IPv6 if the node supports it
// (platformCheckSupported in cmd/kube-proxy/app/server_linux.go).
func missingTable(h *host.Host, sets []*ruleset.Set, unlistable []string) string {
	has := map[string]bool{}
	for _, set := range sets {
		for _, t := range set.NFT {
			has[t.Family] = true
		}
	}
	if len(has) == 0 && len(unlistable) > 0 {
		return "a table"
	}
	off, err := h.ReadSysctl("net/ipv6/conf/all/disable_ipv6")
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		of := func(set string) bool { return strings.HasPrefix(set, family+" ") }
		served := family == ruleset.IPv4 || err == nil && off == "0"
		if !has[family] && served && slices.ContainsFunc(unlistable, of) {
			return "its table " + family
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
