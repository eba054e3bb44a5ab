package nftables

import (
	"context"
	"errors"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/activity"
	"nodegate/internal/ruleset"
	"nodegate/internal/ruleset/nftwire"
)

// ReadForeign returns the tables of families ip, ip6 and inet that have base chains and belong neither
// to kube-proxy nor to iptables-nft alone, as far as their rules are known. The whole result belongs to one
// generation; if the rules change too often, ReadForeign fails with ErrTorn. It needs CAP_NET_ADMIN.
func ReadForeign(ctx context.Context) ([]*ruleset.NFTTable, error) {
	defer activity.Doing(ctx, "netlink: tables of other programs")()
	c, err := dial(ctx, unix.NFPROTO_UNSPEC)
	if err != nil {
		return nil, err
	}
	defer c.close()
	links := sync.OnceValue(linkNames)
	var f *nftwire.Foreign
	err = whole(ctx, func() error {
		f = &nftwire.Foreign{Link: func(index uint32) string { return links()[index] }}
		return team{c}.steady(func() error { return c.foreign(f) })
	})
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return f.Tables(), nil
}

// linkNames returns the links of this thread's namespace by their indexes.
func linkNames() map[uint32]string {
	names := map[uint32]string{}
	list, _ := net.Interfaces() // without names, a comparison of an index is not known
	for _, l := range list {
		names[uint32(l.Index)] = l.Name
	}
	return names
}

func (c *conn) foreign(f *nftwire.Foreign) error {
	c.family = unix.NFPROTO_UNSPEC
	for _, request := range []uint16{unix.NFT_MSG_GETTABLE, unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETSET} {
		if err := c.ask(request, unix.NLM_F_DUMP, nil, f.Add); err != nil {
			return err
		}
	}
	for _, s := range f.Sets() {
		c.family = s.Family
		about := []attribute{called(unix.NFTA_SET_ELEM_LIST_TABLE, s.Table), called(unix.NFTA_SET_ELEM_LIST_SET, s.Name)}
		if err := c.ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, about, f.Add); err != nil {
			return tornIfGone(err)
		}
	}
	for chains := f.Chains(); len(chains) > 0; chains = f.Chains() {
		for _, chain := range chains {
			c.family = chain.Family
			about := []attribute{called(unix.NFTA_RULE_TABLE, chain.Table), called(unix.NFTA_RULE_CHAIN, chain.Name)}
			if err := c.ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, about, f.Add); err != nil {
				return tornIfGone(err)
			}
		}
	}
	return nil
}

// tornIfGone: an object that a dump has listed can only be missing if the rules have changed.
func tornIfGone(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return ErrTorn
	}
	return err
}
