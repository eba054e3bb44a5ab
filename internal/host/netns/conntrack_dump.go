package netns

import (
	"context"
	"encoding/binary"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"nodegate/internal/nlattr"
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
	for b = b[min(nfGenMsg, len(b)):]; len(b) > 0; {
		kind, value, rest, err := nlattr.Next(b)
		if err != nil {
			return false
		}
		if kind == ctaStatus && len(value) == 4 {
			return binary.BigEndian.Uint32(value)&ipsDstNAT != 0
		}
		b = rest
	}
	return false
}
