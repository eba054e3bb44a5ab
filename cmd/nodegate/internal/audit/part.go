package audit

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"nodegate/internal/proxyrules"
)

// RulesOf reads and judges the rules of some Services alone, which costs thousandths of a whole
// reading. It fails with errors.ErrUnsupported if the last whole reading found IPVS mode, or no
// rules. The caller ensures that all rules are in nf_tables.
func (n *Machine) RulesOf(ctx context.Context, services []string) (proxyrules.Judgment, error) {
	if n.mode != "iptables" && n.mode != "nftables" {
		return proxyrules.Judgment{}, fmt.Errorf("reading the rules of some Services, mode %q: %w", n.mode, errors.ErrUnsupported)
	}
	sets, err := n.Host.RulesetsPart(ctx, n.mode == "nftables", proxyrules.NamedIn(services))
	if err != nil {
		return proxyrules.Judgment{}, err
	}
	n.live = proxyrules.Live{NoExternalIPs: sync.OnceValue(n.Presence.NoExternalIPs), Listening: sync.OnceValues(n.Presence.Ports)}
	rep := proxyrules.Judge(sets, proxyrules.Options{NodePortAddresses: n.Presence.NodePortAddresses, Live: n.live})
	if rep.Mode != n.mode || len(rep.Families) != n.families {
		return proxyrules.Judgment{}, fmt.Errorf("a part of the rules has mode %q and %d families, all rules had %q and %d: %w",
			rep.Mode, len(rep.Families), n.mode, n.families, errors.ErrUnsupported)
	}
	rep.KeepOnly(services)
	return rep, nil
}
