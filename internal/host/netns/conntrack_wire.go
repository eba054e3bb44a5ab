package netns

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/wire"
	"nodegate/internal/nlattr"
)

// The attributes of a flow (linux/netfilter/nfnetlink_conntrack.h) and the bits of its status
// (nf_conntrack_common.h).
const (
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
	const nested = unix.NLA_F_NESTED
	port := func(kind, n uint16) []byte { return wire.Attribute(kind, binary.BigEndian.AppendUint16(nil, n)) }
	return append([]byte{family, unix.NFNETLINK_V0, 0, 0}, wire.Attribute(ctaTupleOrig|nested,
		wire.Attribute(ctaTupleIP|nested, wire.Attribute(src, from.AsSlice()), wire.Attribute(dst, to.AsSlice())),
		wire.Attribute(ctaTupleProto|nested, wire.Attribute(ctaProtoNum, []byte{t.Proto}),
			port(ctaProtoSrcPort, t.From.Port()), port(ctaProtoDstPort, t.To.Port())))...), nil
}

var errShortFlow = errors.New("reading a conntrack flow: the message is cut short")

func decodeFlow(b []byte) (f Flow, err error) {
	if len(b) < nfGenMsg {
		return f, errShortFlow
	}
	r := flowReader{}
	a := r.split(b[nfGenMsg:])
	f.Orig, f.Reply = r.tuple(a[ctaTupleOrig]), r.tuple(a[ctaTupleReply])
	status := r.number(a[ctaStatus], 4)
	f.SeenReply, f.SourceNAT, f.DestNAT = status&ipsSeenReply != 0, status&ipsSrcNAT != 0, status&ipsDstNAT != 0
	info := r.split(a[ctaProtoInfo])
	tcp := r.split(info[ctaProtoInfoTCP])
	if state := tcp[ctaProtoInfoTCPState]; state != nil {
		f.TCPState = tcpState(uint8(r.number(state, 1)))
	}
	f.Timeout = time.Duration(r.number(a[ctaTimeout], 4)) * time.Second
	times := r.split(a[ctaTimestamp])
	if start := times[ctaTimestampStart]; start != nil {
		f.Began = time.Unix(0, int64(r.number(start, 8)))
	}
	if r.err != nil {
		return Flow{}, fmt.Errorf("reading a conntrack flow: %w", r.err)
	}
	return f, nil
}

// flowReader reads attributes and keeps the first error.
type flowReader struct{ err error }

// flowAttributes are a flow's, or a nest's in one, by their type; nil if absent.
type flowAttributes [ctaTimestamp + 1][]byte

func (r *flowReader) split(b []byte) (a flowAttributes) {
	r.keep(nlattr.Split(b, a[:]))
	return a
}

// number returns a number in network order, as ctnetlink writes them, 0 if it is absent.
func (r *flowReader) number(b []byte, size int) (n uint64) {
	if b != nil && len(b) != size {
		r.keep(fmt.Errorf("a number of %d bytes has %d", size, len(b)))
	}
	for _, digit := range b {
		n = n<<8 | uint64(digit)
	}
	return n
}

func (r *flowReader) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *flowReader) tuple(b []byte) Tuple {
	a := r.split(b)
	ip, proto := r.split(a[ctaTupleIP]), r.split(a[ctaTupleProto])
	from, _ := netip.AddrFromSlice(either(ip[ctaIPv4Src], ip[ctaIPv6Src]))
	to, _ := netip.AddrFromSlice(either(ip[ctaIPv4Dst], ip[ctaIPv6Dst]))
	return Tuple{
		From:  netip.AddrPortFrom(from, uint16(r.number(proto[ctaProtoSrcPort], 2))),
		To:    netip.AddrPortFrom(to, uint16(r.number(proto[ctaProtoDstPort], 2))),
		Proto: uint8(r.number(proto[ctaProtoNum], 1)),
	}
}

func either(a, b []byte) []byte {
	if a != nil {
		return a
	}
	return b
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

type ctStat struct {
	attribute uint16
	name      string
}

// ctStats are the attributes CTA_STATS_* of linux/netfilter/nfnetlink_conntrack.h that kernels
// still fill in, with their names in /proc/net/stat/nf_conntrack.
func ctStats() []ctStat {
	return []ctStat{
		{14, "clashres"}, {2, "found"}, {4, "invalid"}, {15, "chainlength"}, {8, "insert"}, {9, "insert_failed"}, {10, "drop"},
		{11, "early_drop"}, {12, "icmp_error"}, {13, "search_restart"},
	}
}

// ConntrackStats returns conntrack's counters in the form of /proc/net/stat/nf_conntrack, for
// kernels built without that file: a line of names, and a line of hexadecimal numbers for every
// CPU. It reads the calling thread's namespace. The query loads nf_conntrack_netlink, and with it
// nf_conntrack. The error is fs.ErrPermission if the counters may not be read, and
// errors.ErrUnsupported if the kernel does not have them.
func ConntrackStats() ([]byte, error) {
	var text bytes.Buffer
	for _, s := range ctStats() {
		text.WriteString(s.name + " ")
	}
	err := dumpConntrack(ctGetStatsCPU, func(message []byte) error {
		line, err := decodeStats(message)
		text.WriteString("\n" + line)
		return err
	})
	text.WriteString("\n")
	return text.Bytes(), conntrackErr("counting", Tuple{}, err)
}

// decodeStats returns the numbers of one CPU. An attribute that this kernel lacks is 0.
func decodeStats(b []byte) (line string, err error) {
	if len(b) < nfGenMsg {
		return "", fmt.Errorf("reading conntrack's counters: %d bytes are too short for a message", len(b))
	}
	r := flowReader{}
	a := r.split(b[nfGenMsg:])
	for _, s := range ctStats() {
		n := uint64(0)
		if raw := a[s.attribute]; len(raw) == 4 {
			n = r.number(raw, 4)
		}
		line += fmt.Sprintf("%08x ", n)
	}
	return line, r.err
}
