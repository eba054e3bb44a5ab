package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The attributes of a flow (linux/netfilter/nfnetlink_conntrack.h) and the bits of its status
// (nf_conntrack_common.h).
const (
	ctNew netlink.HeaderType = unix.NFNL_SUBSYS_CTNETLINK << 8

	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaStatus     = 3
	ctaProtoInfo  = 4
	ctaTimeout    = 7
	ctaTimestamp  = 20

	ctaTimestampStart = 1

	ctaTupleIP      = 1
	ctaTupleProto   = 2
	ctaIPv4Src      = 1
	ctaIPv4Dst      = 2
	ctaIPv6Src      = 3
	ctaIPv6Dst      = 4
	ctaProtoNum     = 1
	ctaProtoSrcPort = 2
	ctaProtoDstPort = 3

	ctaProtoInfoTCP      = 1
	ctaProtoInfoTCPState = 1

	ipsSeenReply = 1 << 1
	ipsSrcNAT    = 1 << 4
	ipsDstNAT    = 1 << 5
)

// tcpState returns the name of a state of enum tcp_conntrack.
func tcpState(n uint8) string {
	names := [...]string{"NONE", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT",
		"LAST_ACK", "TIME_WAIT", "CLOSE", "SYN_SENT2"}
	if int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprintf("state %d", n)
}

// nfGenMsg is the length of the header that precedes the attributes of every
// netfilter message.
const nfGenMsg = 4

func encodeTuple(t Tuple) ([]byte, error) {
	from, to := t.From.Addr().Unmap(), t.To.Addr().Unmap()
	if !from.IsValid() || !to.IsValid() || from.Is4() != to.Is4() {
		return nil, fmt.Errorf("%s to %s is not a flow", t.From, t.To)
	}
	family, src, dst := byte(unix.AF_INET), uint16(ctaIPv4Src), uint16(ctaIPv4Dst)
	if from.Is6() {
		family, src, dst = unix.AF_INET6, ctaIPv6Src, ctaIPv6Dst
	}
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	e.Nested(ctaTupleOrig, func(e *netlink.AttributeEncoder) error {
		e.Nested(ctaTupleIP, func(e *netlink.AttributeEncoder) error {
			e.Bytes(src, from.AsSlice())
			e.Bytes(dst, to.AsSlice())
			return nil
		})
		e.Nested(ctaTupleProto, func(e *netlink.AttributeEncoder) error {
			e.Uint8(ctaProtoNum, t.Proto)
			e.Uint16(ctaProtoSrcPort, t.From.Port())
			e.Uint16(ctaProtoDstPort, t.To.Port())
			return nil
		})
		return nil
	})
	attrs, err := e.Encode()
	return append([]byte{family, unix.NFNETLINK_V0, 0, 0}, attrs...), err
}

var errShortFlow = errors.New("reading a conntrack flow: the message is cut short")

func decodeFlow(b []byte) (f Flow, err error) {
	if len(b) < nfGenMsg {
		return f, errShortFlow
	}
	d, err := newFlowDecoder(b[nfGenMsg:])
	if err != nil {
		return f, err
	}
	for d.Next() {
		switch d.Type() {
		case ctaTupleOrig:
			d.Nested(f.Orig.decode)
		case ctaTupleReply:
			d.Nested(f.Reply.decode)
		case ctaStatus:
			status := d.Uint32()
			f.SeenReply, f.SourceNAT, f.DestNAT = status&ipsSeenReply != 0, status&ipsSrcNAT != 0, status&ipsDstNAT != 0
		case ctaProtoInfo:
			d.Nested(f.decodeProtoInfo)
		case ctaTimeout:
			f.Timeout = time.Duration(d.Uint32()) * time.Second
		case ctaTimestamp:
			d.Nested(f.decodeTimestamp)
		}
	}
	if err := d.Err(); err != nil {
		return Flow{}, fmt.Errorf("reading a conntrack flow: %w", err)
	}
	return f, nil
}

// newFlowDecoder decodes numbers in network byte order, as ctnetlink writes them.
func newFlowDecoder(b []byte) (*netlink.AttributeDecoder, error) {
	d, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return nil, fmt.Errorf("reading a conntrack flow: %w", err)
	}
	d.ByteOrder = binary.BigEndian
	return d, nil
}

func (f *Flow) decodeProtoInfo(d *netlink.AttributeDecoder) error {
	for d.Next() {
		if d.Type() == ctaProtoInfoTCP {
			d.Nested(func(d *netlink.AttributeDecoder) error {
				for d.Next() {
					if d.Type() == ctaProtoInfoTCPState {
						f.TCPState = tcpState(d.Uint8())
					}
				}
				return nil
			})
		}
	}
	return nil
}

func (f *Flow) decodeTimestamp(d *netlink.AttributeDecoder) error {
	for d.Next() {
		if d.Type() == ctaTimestampStart {
			f.Began = time.Unix(0, int64(d.Uint64()))
		}
	}
	return nil
}

func (t *Tuple) decode(d *netlink.AttributeDecoder) error {
	var from, to netip.Addr
	var ports [2]uint16
	for d.Next() {
		switch d.Type() {
		case ctaTupleIP:
			d.Nested(func(d *netlink.AttributeDecoder) error {
				for d.Next() {
					switch d.Type() {
					case ctaIPv4Src, ctaIPv6Src:
						from, _ = netip.AddrFromSlice(d.Bytes())
					case ctaIPv4Dst, ctaIPv6Dst:
						to, _ = netip.AddrFromSlice(d.Bytes())
					}
				}
				return nil
			})
		case ctaTupleProto:
			d.Nested(func(d *netlink.AttributeDecoder) error {
				for d.Next() {
					switch d.Type() {
					case ctaProtoNum:
						t.Proto = d.Uint8()
					case ctaProtoSrcPort:
						ports[0] = d.Uint16()
					case ctaProtoDstPort:
						ports[1] = d.Uint16()
					}
				}
				return nil
			})
		}
	}
	t.From, t.To = netip.AddrPortFrom(from, ports[0]), netip.AddrPortFrom(to, ports[1])
	return nil
}
