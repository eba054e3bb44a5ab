package ipvs

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/wire"
	"nodegate/internal/nlattr"
	"nodegate/internal/ruleset"
)

// Of the kernel's include/uapi/linux/ip_vs.h.
const (
	version                    = 1
	getService, getDestination = 4, 8 // IPVS_CMD_GET_*
	aService, aDestination     = 1, 2 // IPVS_CMD_ATTR_*

	aFamily, aProtocol, aAddress, aPort, aMark, aScheduler, aFlags, aTimeout = 1, 2, 3, 4, 5, 6, 7, 8 // IPVS_SVC_ATTR_*

	aRealAddress, aRealPort, aWeight, aRealFamily = 1, 2, 4, 11 // IPVS_DEST_ATTR_*

	persistent = 1 // IP_VS_SVC_F_PERSISTENT
	header     = 4 // struct genlmsghdr
)

// attributes are one message's, by number.
type attributes [24][]byte

// read splits the attributes of a message, or those in one of them.
func read(message []byte, in uint16) (attributes, error) {
	if len(message) < header {
		return attributes{}, io.ErrUnexpectedEOF
	}
	a, err := split(message[header:])
	if err != nil || in == 0 {
		return a, err
	}
	return split(a[in])
}

func split(b []byte) (a attributes, err error) {
	err = nlattr.Split(b, a[:])
	return a, err
}

// number returns an attribute of the kernel's byte order, 0 where it is not there.
func (a *attributes) number(kind int) uint32 {
	switch b := a[kind]; len(b) {
	case 2:
		return uint32(binary.NativeEndian.Uint16(b))
	case 4, 8:
		return binary.NativeEndian.Uint32(b) // of flags, the first half
	}
	return 0
}

// place returns an address, which has 16 bytes in either family, and a port.
func (a *attributes) place(address, port int, v4 bool) (netip.AddrPort, error) {
	ip, number := a[address], a[port]
	if len(ip) != 16 || len(number) != 2 {
		return netip.AddrPort{}, fmt.Errorf("an address of %d bytes and a port of %d", len(ip), len(number))
	}
	if v4 {
		ip = ip[:4]
	}
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(number)), nil
}

func (a *attributes) text(kind int) string {
	text, _, _ := strings.Cut(string(a[kind]), "\x00")
	return text
}

// decodeFamily returns the number of a family, and whether that has the name.
func decodeFamily(message []byte, name string) (uint16, bool) {
	a, err := read(message, 0)
	number := a.number(unix.CTRL_ATTR_FAMILY_ID)
	return uint16(number), err == nil && number != 0 && a.text(unix.CTRL_ATTR_FAMILY_NAME) == name
}

// protocol returns the name of one for which Services are, "" for another.
func protocol(number uint32) string {
	switch number {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	}
	return ""
}

// decodeServer returns a virtual server. ok is false for one of a kind that kube-proxy does not make: a firewall mark's, or of another
// protocol.
func decodeServer(message []byte) (s ruleset.VirtualServer, ok bool, err error) {
	a, err := read(message, aService)
	if err != nil {
		return s, false, err
	}
	s.Protocol = protocol(a.number(aProtocol))
	if a[aMark] != nil || s.Protocol == "" && a[aProtocol] != nil {
		return s, false, nil
	}
	family := a.number(aFamily)
	if s.Protocol == "" || family != unix.AF_INET && family != unix.AF_INET6 {
		return s, false, fmt.Errorf("address family %d, protocol %d", family, a.number(aProtocol))
	}
	if s.Address, err = a.place(aAddress, aPort, family == unix.AF_INET); err != nil {
		return s, false, err
	}
	s.Scheduler = a.text(aScheduler)
	if a.number(aFlags)&persistent != 0 {
		s.Affinity = int(a.number(aTimeout))
	}
	return s, true, nil
}

// decodeDestination returns a real server, of its virtual server's family where it does not name its own.
func decodeDestination(message []byte, v4 bool) (s ruleset.RealServer, err error) {
	a, err := read(message, aDestination)
	if err != nil {
		return s, err
	}
	if family := a.number(aRealFamily); family != 0 {
		v4 = family == unix.AF_INET
	}
	if len(a[aWeight]) != 4 {
		return s, fmt.Errorf("a weight of %d bytes", len(a[aWeight]))
	}
	s.Weight = a.number(aWeight)
	s.Address, err = a.place(aRealAddress, aRealPort, v4)
	return s, err
}

// encode names a virtual server.
func encode(s *ruleset.VirtualServer) []byte {
	family, address := uint16(unix.AF_INET6), s.Address.Addr().AsSlice()
	if s.Address.Addr().Is4() {
		family, address = unix.AF_INET, append(address, make([]byte, 12)...)
	}
	number := func(kind, n uint16) []byte { return wire.Attribute(kind, binary.NativeEndian.AppendUint16(nil, n)) }
	return wire.Attribute(aService|unix.NLA_F_NESTED, number(aFamily, family),
		number(aProtocol, map[string]uint16{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}[s.Protocol]),
		wire.Attribute(aAddress, address), wire.Attribute(aPort, binary.BigEndian.AppendUint16(nil, s.Address.Port())))
}
