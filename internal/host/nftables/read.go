package nftables

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"nodegate/internal/host/activity"
	"nodegate/internal/ruleset"
	"nodegate/internal/ruleset/nftwire"
)

// tries is how often a table is read that changes meanwhile.
const tries = 5

// Generation returns what differs whenever the rules of nf_tables do. It needs CAP_NET_ADMIN.
func Generation(ctx context.Context) (string, error) {
	c, err := dial(ctx, unix.NFPROTO_UNSPEC)
	if err != nil {
		return "", fmt.Errorf("asking for the generation of the rules: %w", err)
	}
	defer c.close()
	id, err := c.generation()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%08x", id), nil
}

// Read returns kube-proxy's table of a family: fs.ErrNotExist where there is none. All of it is of one generation; where the rules
// change too often for that it fails with ErrTorn. It needs CAP_NET_ADMIN.
func Read(ctx context.Context, family string) (*ruleset.NFTTable, error) {
	defer activity.Doing(ctx, "netlink: table "+family+" "+ruleset.KubeProxyTable)()
	number := map[string]uint8{ruleset.IPv4: unix.NFPROTO_IPV4, ruleset.IPv6: unix.NFPROTO_IPV6}[family]
	c, err := dial(ctx, number)
	if err != nil {
		return nil, err
	}
	defer c.close()
	var t *ruleset.NFTTable
	for range tries {
		if t, err = c.table(family); !errors.Is(err, ErrTorn) {
			break
		}
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return t, err
}

// table reads the table once. A change before the first answer, between two, or in one, is ErrTorn.
func (c *conn) table(family string) (*ruleset.NFTTable, error) {
	about := func(kind uint16, value string) netlink.Attribute {
		return netlink.Attribute{Type: kind, Data: append([]byte(value), 0)}
	}
	const inTable = 1 // NFTA_CHAIN_TABLE, NFTA_SET_TABLE, NFTA_RULE_TABLE: all the same
	of := []netlink.Attribute{about(inTable, ruleset.KubeProxyTable)}
	generation, err := c.generation()
	if errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("the kernel has no nf_tables: %w", errors.ErrUnsupported)
	}
	if err != nil {
		return nil, err
	}
	if err := c.ask(unix.NFT_MSG_GETTABLE, netlink.Acknowledge, of, func(int, []byte) error { return nil }); errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("no table %s %s: %w", family, ruleset.KubeProxyTable, fs.ErrNotExist)
	} else if err != nil {
		return nil, err
	}
	d := nftwire.New(family)
	add := func(message int, b []byte) error {
		if binary.BigEndian.Uint16(b[2:]) != uint16(generation) { // nfgenmsg has the lower half of it
			return ErrTorn
		}
		return d.Add(message, b)
	}
	if err := c.ask(unix.NFT_MSG_GETCHAIN, netlink.Dump, nil, add); err != nil {
		return nil, err
	}
	if err := c.ask(unix.NFT_MSG_GETSET, netlink.Dump, of, add); err != nil {
		return nil, err
	}
	for _, name := range d.Sets() {
		set := []netlink.Attribute{of[0], about(unix.NFTA_SET_ELEM_LIST_SET, name)}
		if err := c.ask(unix.NFT_MSG_GETSETELEM, netlink.Dump, set, add); errors.Is(err, unix.ENOENT) {
			return nil, ErrTorn // it was there
		} else if err != nil {
			return nil, err
		}
	}
	if err := c.ask(unix.NFT_MSG_GETRULE, netlink.Dump, of, add); err != nil {
		return nil, err
	}
	if now, err := c.generation(); err != nil {
		return nil, err
	} else if now != generation {
		return nil, ErrTorn
	}
	return d.Table()
}
