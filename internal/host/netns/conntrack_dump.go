package netns

import (
	"context"
	"encoding/binary"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Translated returns the flows in conntrack's table whose destination was changed (DNAT), for every
// zone, protocol and address family. The error is fs.ErrPermission if the table may not be read,
// and errors.ErrUnsupported if the kernel does not have it.
func (n *Namespace) Translated(ctx context.Context) ([]Flow, error) {
	var flows []Flow
	var unreadable error
	err := n.Do(ctx, func() error {
		request := nl.NewNetlinkRequest(int(ctGet), unix.NLM_F_DUMP)
		request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
		return request.ExecuteIter(unix.NETLINK_NETFILTER, uint16(ctNew), func(message []byte) bool {
			if !destNAT(message) {
				return true
			}
			var f Flow
			if f, unreadable = decodeFlow(message); unreadable == nil {
				flows = append(flows, f)
			}
			return unreadable == nil && ctx.Err() == nil
		})
	})
	if err == nil {
		err = unreadable
	}
	if err == nil {
		err = ctx.Err()
	}
	return flows, conntrackErr("listing", Tuple{}, err)
}

// destNAT reports whether a flow's destination was changed. It reads no other attribute, because
// most flows of a table are not translated.
func destNAT(b []byte) bool {
	for b = b[min(nfGenMsg, len(b)):]; len(b) >= unix.SizeofNlAttr; {
		size, kind := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)
		if size < unix.SizeofNlAttr || size > len(b) {
			return false
		}
		if kind == ctaStatus && size == unix.SizeofNlAttr+4 {
			return binary.BigEndian.Uint32(b[unix.SizeofNlAttr:])&ipsDstNAT != 0
		}
		b = b[min(len(b), (size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
	}
	return false
}
