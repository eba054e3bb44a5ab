package netns

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

func TestParsePorts(t *testing.T) {
	for text, want := range map[string][]uint16{
		"": nil, "5": {5}, "1,5-7": {1, 5, 6, 7}, "65534-65535": {65534, 65535}, "7-5": nil,
	} {
		got, err := parsePorts(text)
		assert.True(t, err == nil && slices.Equal(got, want), "%q: %v, %v", text, got, err)
	}
	for _, text := range []string{"x", "1-", "70000", "-1"} {
		got, err := parsePorts(text)
		assert.True(t, err != nil, "%q: %v", text, got)
	}
}

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

func FuzzParsePorts(f *testing.F) {
	f.Add("1,5-7\t32768-60999")
	f.Add("30000-32767,")
	f.Fuzz(func(t *testing.T, text string) {
		ports, err := parsePorts(text)
		require.True(t, err != nil || len(ports) <= 65536*(1+strings.Count(text, ",")), "%d ports in %q", len(ports), text)
	})
}
