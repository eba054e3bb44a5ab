package netns

import (
	"net/netip"
	"testing"

	"nodegate/internal/assert"
)

func TestParseSegment(t *testing.T) {
	packet := []byte{
		0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 203, 0, 113, 3, 198, 51, 100, 10,
		0, 80, 0xc0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x12, 0, 0, 0, 0, 0, 0,
	}
	want := Segment{From: netip.MustParseAddrPort("203.0.113.3:80"), To: netip.MustParseAddrPort("198.51.100.10:49152"),
		Flags: SYN | ACK, Seq: 1, Ack: 2}
	got, ok := parseSegment(packet)
	assert.True(t, ok && got == want, "%+v", got)
}

func FuzzParseSegment(f *testing.F) {
	f.Add([]byte{
		0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 203, 0, 113, 3, 198, 51, 100, 10,
		0, 80, 0xc0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x12, 0, 0, 0, 0, 0, 0,
	})
	f.Add([]byte{0x4f, 0, 0, 20, 0, 0, 0, 0, 64, 6, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, b []byte) { parseSegment(b) })
}
