package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"nodegate/internal/host/nftables"
	"nodegate/internal/ruleset"
)

// RulesetsPart reads the rules that part selects: with tables, in kube-proxy's own tables (nftables
// mode), otherwise in iptables-nft's tables. It fails with errors.ErrUnsupported if they cannot be
// read in parts.
func (h *Host) RulesetsPart(ctx context.Context, tables bool, part nftables.Part) ([]*ruleset.Set, error) {
	if _, is := h.Rules.(machineRules); !is || !mayQueryNFTables() {
		return nil, fmt.Errorf("reading a part of the rules: %w", errors.ErrUnsupported)
	}
	var sets []*ruleset.Set
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		if tables {
			switch t, err := nftables.ReadPart(ctx, family, part); {
			case err == nil:
				sets = append(sets, &ruleset.Set{Source: "netlink: a part of " + tableName(family), NFT: []*ruleset.NFTTable{t}})
			case !errors.Is(err, fs.ErrNotExist):
				return nil, fmt.Errorf("reading a part of %s over netlink: %w", tableName(family), err)
			}
			continue
		}
		err := nftables.SavePart(ctx, family, part, func(r io.Reader) error {
			set, err := ruleset.Parse("netlink: a part of iptables-nft", r)
			if errors.Is(err, ruleset.ErrNoRules) {
				return nil
			}
			if err == nil {
				sets = append(sets, set)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("reading a part of iptables-nft's rules over netlink, family %s: %w", family, err)
		}
	}
	return sets, nil
}
