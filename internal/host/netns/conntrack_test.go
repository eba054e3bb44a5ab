package netns

import (
	"errors"
	"io/fs"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// someFlow is a handwritten message about a translated TCP connection; the datapath tests read real ones.
var someFlow = []byte{
	2, 0, 0, 0,
	0x34, 0, 1, 0x80, // CTA_TUPLE_ORIG
	0x14, 0, 1, 0x80, 8, 0, 1, 0, 203, 0, 113, 2, 8, 0, 2, 0, 198, 51, 100, 10,
	0x1c, 0, 2, 0x80, 5, 0, 1, 0, 6, 0, 0, 0, 6, 0, 2, 0, 0xc0, 0, 0, 0, 6, 0, 3, 0, 0, 80, 0, 0,
	0x34, 0, 2, 0x80, // CTA_TUPLE_REPLY
	0x14, 0, 1, 0x80, 8, 0, 1, 0, 203, 0, 113, 3, 8, 0, 2, 0, 203, 0, 113, 2,
	0x1c, 0, 2, 0x80, 5, 0, 1, 0, 6, 0, 0, 0, 6, 0, 2, 0, 0, 80, 0, 0, 6, 0, 3, 0, 0xc0, 0, 0, 0,
	8, 0, 3, 0, 0, 0, 1, 0xaa, // CTA_STATUS
	0x10, 0, 4, 0x80, 0xc, 0, 1, 0x80, 5, 0, 1, 0, 3, 0, 0, 0, // CTA_PROTOINFO
}

func flowForTest() Flow {
	client, service := netip.MustParseAddrPort("203.0.113.2:49152"), netip.MustParseAddrPort("198.51.100.10:80")
	endpoint := netip.MustParseAddrPort("203.0.113.3:80")
	return Flow{Orig: Tuple{client, service, 6}, Reply: Tuple{endpoint, client, 6}, SeenReply: true, DestNAT: true, TCPState: "ESTABLISHED"}
}

func TestDecodeFlow(t *testing.T) {
	got, err := decodeFlow(someFlow)
	require.NoError(t, err)
	assert.Equal(t, cmp.Diff(flowForTest(), got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })), "")
	for cut := range someFlow {
		_, _ = decodeFlow(someFlow[:cut]) // may fail, must not panic
	}
}

// TestEncodeTuple: a request has the same form as its response.
func TestEncodeTuple(t *testing.T) {
	for _, tuple := range []Tuple{
		flowForTest().Orig,
		{netip.MustParseAddrPort("[2001:db8::1]:4000"), netip.MustParseAddrPort("[2001:db8::2]:53"), 17},
	} {
		b, err := encodeTuple(tuple)
		require.NoError(t, err)
		if f, err := decodeFlow(b); err != nil || f.Orig != tuple {
			t.Errorf("%+v: %+v, %v", tuple, f.Orig, err)
		}
	}
	for _, bad := range []Tuple{{}, {From: netip.MustParseAddrPort("1.2.3.4:5"), To: netip.MustParseAddrPort("[::1]:5")}} {
		_, err := encodeTuple(bad)
		assert.True(t, err != nil, "%+v", bad)
	}
}

func TestConntrackErrors(t *testing.T) {
	for want, err := range map[error]error{
		fs.ErrPermission:      unix.EPERM,
		errors.ErrUnsupported: unix.EOPNOTSUPP,
		fs.ErrNotExist:        unix.ENOENT,
	} {
		got := conntrackErr("looking up", Tuple{}, err)
		assert.True(t, errors.Is(got, want), "%v: %v", err, got)
	}
}

func FuzzDecodeFlow(f *testing.F) {
	f.Add(someFlow)
	f.Add(someFlow[:60])
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = decodeFlow(b) })
}
