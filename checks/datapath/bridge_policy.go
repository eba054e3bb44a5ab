package datapath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"nodegate/internal/host/netns"
	"nodegate/internal/host/nftables"
	"nodegate/internal/host/program"
	"nodegate/internal/host/xtables"
	"nodegate/internal/ruleset"
)

// probeOn probes the bridge in the router's namespace. If the policy of a chain of hook forward drops the probe's packets,
// it repeats the probe in a scratch namespace with the router's settings: a CNI that accepts its Pods' range does not accept
// the probe's addresses, and that is not a fault of the bridge.
func probeOn(ctx context.Context, router *netns.Namespace, o BridgeOptions) (BridgeResult, error) {
	r, err := probeIn(ctx, router, o)
	if err != nil || r.Lost != RequestDropped && r.Lost != ReplyDropped {
		return r, err
	}
	chains, err := forwardPolicies(ctx, router)
	if err != nil {
		r.Warnings = append(r.Warnings, "reading the policies of hook forward: "+err.Error())
	}
	if len(chains) == 0 {
		return r, nil
	}
	again, err := probeAside(ctx, o, r.Observed.Settings)
	if err != nil {
		r.Warnings = append(r.Warnings, "repeating the probe in a scratch namespace: "+err.Error())
		return r, nil
	}
	again.Removed, again.Warnings = r.Removed, slices.Concat(r.Warnings, again.Warnings)
	again.Summary = fmt.Sprintf("%s, in a scratch namespace with this host's settings: on the host the policy of %s drops the probe's "+
		"addresses, so the CNI must accept the Pods' addresses there", again.Summary, strings.Join(chains, ", "))
	return again, nil
}

// probeAside probes a bridge in a new namespace with the settings of another one.
func probeAside(ctx context.Context, o BridgeOptions, settings Settings) (BridgeResult, error) {
	n, err := netns.New(ctx)
	if err != nil {
		return BridgeResult{}, err
	}
	defer n.Close()
	forward, call := settings.Forward == "1", settings.CallIPTables == "1"
	o.InScratch, o.Forward, o.CallIPTables = true, &forward, &call
	if settings.CallIPTables == Absent {
		o.CallIPTables = nil
	}
	err = o.prepare(ctx, n)
	if errors.Is(err, fs.ErrNotExist) { // before Linux 5.3 all namespaces share the setting
		o.CallIPTables = nil
		err = o.prepare(ctx, n)
	}
	if err != nil {
		return BridgeResult{}, err
	}
	return probeIn(ctx, n, o)
}

// forwardPolicies returns the chains of hook forward whose policy is drop, in both backends of iptables and in nftables.
func forwardPolicies(ctx context.Context, router *netns.Namespace) (chains []string, err error) {
	err = router.Do(ctx, func() error {
		var failed error
		chains, failed = nftables.ForwardPolicies(ctx)
		// iptables-legacy creates a table that it lists, so it must already exist.
		tables, err := os.ReadFile(xtables.Names(ruleset.IPv4))
		if err != nil || !slices.Contains(strings.Fields(string(tables)), "filter") {
			return failed
		}
		for _, name := range []string{"iptables-legacy", "iptables"} {
			listing, err := program.Run(ctx, name, "-w", "1", "-S", "FORWARD")
			if err == nil && strings.Contains(string(listing), "-P FORWARD DROP\n") {
				chains = append(chains, ruleset.Legacy+" filter FORWARD")
				break
			}
		}
		return failed
	})
	return chains, err
}
