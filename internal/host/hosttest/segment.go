package hosttest

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Segment returns an IPv4 packet with an empty TCP segment that has only the ACK flag.
func Segment(from, to netip.AddrPort, seq, ack uint32) []byte {
	b := make([]byte, 40)
	b[0], b[8], b[9] = 0x45, 64, unix.IPPROTO_TCP // the kernel fills in the rest
	copy(b[12:], from.Addr().AsSlice())
	copy(b[16:], to.Addr().AsSlice())
	tcp := b[20:]
	binary.BigEndian.PutUint16(tcp, from.Port())
	binary.BigEndian.PutUint16(tcp[2:], to.Port())
	binary.BigEndian.PutUint32(tcp[4:], seq)
	binary.BigEndian.PutUint32(tcp[8:], ack)
	tcp[12], tcp[13] = 5<<4, 1<<4 // five words of header, ACK
	binary.BigEndian.PutUint16(tcp[14:], 1000)
	sum := uint32(unix.IPPROTO_TCP) + uint32(len(tcp))
	for i := 12; i < len(b); i += 2 { // the addresses are the pseudo-header
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(tcp[16:], ^uint16(sum))
	return b
}

// SendPacket sends an IPv4 packet, including its header, from the calling thread's network namespace.
func SendPacket(packet []byte) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: [4]byte(packet[16:20])})
}
