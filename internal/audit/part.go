package audit

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"nodegate/internal/audit/proxy"
)

// RulesOf reads and judges the rules of some Services alone, which costs thousandths of a whole
// reading. It fails with errors.ErrUnsupported if the last whole reading found IPVS mode, or no
// rules. The caller ensures that all rules are in nf_tables.
func (n *Machine) RulesOf(ctx context.Context, services []string) (proxy.Judgment, error) {
	if n.mode != "iptables" && n.mode != "nftables" {
		return proxy.Judgment{}, fmt.Errorf("reading the rules of some Services, mode %q: %w", n.mode, errors.ErrUnsupported)
	}
	sets, err := n.Host.RulesetsPart(ctx, n.mode == "nftables", proxy.NamedIn(services))
	if err != nil {
		return proxy.Judgment{}, err
	}
	n.live = proxy.Live{NoExternalIPs: sync.OnceValue(n.Presence.NoExternalIPs), Listening: sync.OnceValues(n.Presence.Ports)}
	rep := proxy.Judge(sets, proxy.Options{NodePortAddresses: n.Presence.NodePortAddresses, Live: n.live})
	if rep.Mode != n.mode || len(rep.Families) != n.families {
		return proxy.Judgment{}, fmt.Errorf("a part of the rules has mode %q and %d families, all rules had %q and %d: %w",
			rep.Mode, len(rep.Families), n.mode, n.families, errors.ErrUnsupported)
	}
	rep.KeepOnly(services)
	return rep, nil
}
