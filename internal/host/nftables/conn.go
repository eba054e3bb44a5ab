// Package nftables reads nf_tables over netlink: its generation, kube-proxy's tables, and
// iptables-nft's tables.
package nftables

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/wire"
)

// ErrTorn is the error of a read during which the rules changed.
var ErrTorn = errors.New("the rules changed while they were read")

const nfGenMsg = 4 // the header of every message: struct nfgenmsg

// conn queries nf_tables.
type conn struct {
	*wire.Conn
	ctx    context.Context
	family uint8
	fixed  uint32 // the generation that all responses must have, 0 for any
}

// called returns the attribute that names a table, a chain or a set.
func called(kind uint16, name string) []byte { return wire.Attribute(kind, []byte(name), []byte{0}) }

func dial(ctx context.Context, family uint8) (*conn, error) {
	s, err := wire.Open(unix.NETLINK_NETFILTER)
	return &conn{Conn: s, ctx: ctx, family: family}, err
}

// generation returns the number that every change of the rules increments: NFTA_GEN_ID of
// include/uapi/linux/netfilter/nf_tables.h.
func (c *conn) generation() (uint32, error) {
	var id []byte
	err := c.ask(unix.NFT_MSG_GETGEN, unix.NLM_F_ACK, nil, func(_ int, b []byte) error {
		a, err := split(b[nfGenMsg:])
		id = bytes.Clone(a[unix.NFTA_GEN_ID])
		return err
	})
	if err == nil && len(id) != 4 {
		err = errors.New("the response does not contain it")
	}
	if err != nil {
		return 0, fmt.Errorf("reading the generation of the rules: %w", err)
	}
	return binary.BigEndian.Uint32(id), nil
}

// ask sends a request and passes each response to read, which must not keep it. If read fails, the
// remaining responses are discarded before the error is returned.
func (c *conn) ask(request, flags uint16, about [][]byte, read func(message int, b []byte) error) error {
	payload := append([]byte{c.family, unix.NFNETLINK_V0, 0, 0}, bytes.Join(about, nil)...)
	err := c.Each(unix.NFNL_SUBSYS_NFTABLES<<8|request, flags, payload, func(kind uint16, b []byte) error {
		switch {
		case c.ctx.Err() != nil:
			return c.ctx.Err()
		case len(b) < nfGenMsg:
			return nil
		case c.fixed != 0 && binary.BigEndian.Uint16(b[2:]) != uint16(c.fixed): // nfgenmsg has the lower half of the generation
			return ErrTorn
		}
		return read(int(kind&0xff), b)
	})
	if errors.Is(err, wire.ErrTorn) {
		return ErrTorn
	}
	return err
}
