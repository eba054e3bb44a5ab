package nftables

import (
	"cmp"
	"context"
	"io"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/activity"
	"nodegate/internal/ruleset/nftwire"
)

// Save passes the text that iptables-nft-save would print for a family to read, line for line;
// without a table that is nothing. A text that ends without an error belongs to one generation. If
// the rules change during the read, the text ends with an error and read is called again. Save
// fails if it does not know a rule. It needs CAP_NET_ADMIN.
func Save(ctx context.Context, family string, read func(io.Reader) error) error {
	defer activity.Doing(ctx, "netlink: iptables-nft, family "+family)()
	c, err := dial(ctx, protocolOf(family))
	if err != nil {
		return err
	}
	defer c.Close()
	return whole(ctx, func() error {
		r, w := io.Pipe()
		wrote := make(chan error, 1)
		go func() {
			err := team{c}.steady(func() error { return c.save(nftwire.NewSave(family, w)) })
			_ = w.CloseWithError(err) // never fails
			wrote <- err
		}()
		failed := read(r)
		_ = r.CloseWithError(failed)
		return cmp.Or(<-wrote, failed)
	})
}

// save reads the tables once.
func (c *conn) save(s *nftwire.Save) error {
	for _, request := range []uint16{unix.NFT_MSG_GETTABLE, unix.NFT_MSG_GETCHAIN} {
		if err := c.ask(request, unix.NLM_F_DUMP, nil, s.Add); err != nil {
			return err
		}
	}
	for _, t := range s.Tables() {
		s.Begin(t)
		for i := range t.Chains {
			s.Of(t.Chains[i].Name)
			chain := [][]byte{called(unix.NFTA_RULE_TABLE, t.Name), called(unix.NFTA_RULE_CHAIN, t.Chains[i].Name)}
			if err := c.ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, chain, s.AddRule); err != nil {
				return err
			}
		}
		if err := s.End(); err != nil {
			return err
		}
	}
	return nil
}
