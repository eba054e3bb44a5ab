package path_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/audit/path"
	"nodegate/internal/require"
)

// listen opens a packet socket on the far end of the uplink.
func (w wire) listen(t *testing.T) int {
	socket := -1
	err := w.pod.Do(t.Context(), func() (err error) {
		const ipv4 = unix.ETH_P_IP>>8 | unix.ETH_P_IP&0xff<<8
		if socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, ipv4); err != nil {
			return err
		}
		index, err := interfaceIndex("up1")
		if err != nil {
			return err
		}
		_ = unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20)
		return unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: ipv4, Ifindex: index})
	})
	require.NoError(t, err)
	return socket
}

func interfaceIndex(name string) (int, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(socket) }()
	request, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	err = unix.IoctlIfreq(socket, unix.SIOCGIFINDEX, request)
	return int(request.Uint32()), err
}

// answer sends back every UDP packet that came to the socket, with its addresses and ports exchanged,
// which leaves the checksum of the header right.
func answer(t *testing.T, socket int) {
	defer func() { _ = unix.Close(socket) }()
	var frames [][]byte
	for {
		b := make([]byte, 2048)
		n, _, err := unix.Recvfrom(socket, b, unix.MSG_DONTWAIT)
		if err != nil {
			break
		}
		const header, udp = 14, 17
		if n < header+28 || b[header+9] != udp {
			continue
		}
		b = b[:n]
		swap(b, 0, 6, 6)
		swap(b, header+12, header+16, 4)
		swap(b, header+20, header+22, 2)
		b[header+26], b[header+27] = 0, 0 // the kernel leaves the checksum to the device
		frames = append(frames, b)
	}
	for _, b := range frames {
		_, _ = unix.Write(socket, b) // one that is lost is missing from the observer's set
	}
	time.Sleep(2 * time.Millisecond)
}

func swap(b []byte, x, y, n int) {
	for i := range n {
		b[x+i], b[y+i] = b[y+i], b[x+i]
	}
}

// repliedTo formats the end of a reply as seen does.
func repliedTo(ways []path.Way) (end string, sure bool) {
	if len(ways) != 1 || !ways[0].Sure || ways[0].Packet.State != path.StateEstablished || ways[0].End == path.Lost || ways[0].Packet.Mark.Unknown != 0 {
		return "", false
	}
	if w := ways[0]; w.End == path.Forwarded || w.End == path.Delivered {
		return fmt.Sprintf("back %s:%d mark %d", w.Packet.Source.Addr(), w.Packet.SourcePort, w.Packet.Mark.Value), true
	}
	return "", true
}
