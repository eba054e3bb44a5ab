package nlattr_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/nlattr"
	"nodegate/internal/require"
)

func encoded(t testing.TB) []byte {
	t.Helper()
	e := netlink.NewAttributeEncoder()
	e.Uint8(1, 7)
	e.Nested(2, func(e *netlink.AttributeEncoder) error { e.String(1, "a name"); return nil })
	e.Bytes(3|unix.NLA_F_NET_BYTEORDER, []byte{1, 2})
	e.Bytes(200, nil)
	e.Bytes(1, []byte{8})
	b, err := e.Encode()
	require.NoError(t, err)
	return b
}

func TestSplit(t *testing.T) {
	var a [5][]byte
	require.NoError(t, nlattr.Split(encoded(t), a[:]))
	var nest [2][]byte
	err := nlattr.Split(a[2], nest[:])
	assert.True(t, err == nil && string(nest[1]) == "a name\x00", "in the nest: %q, %v", nest[1], err)
	assert.True(t, bytes.Equal(a[1], []byte{8}) && bytes.Equal(a[3], []byte{1, 2}) && a[0] == nil && a[4] == nil, "%q", a)
	before := bytes.Clone(encoded(t))
	message := bytes.Clone(before)
	if _, value, _, err := nlattr.Next(message); err != nil || !bytes.Equal(append(value, 1, 2, 3), []byte{7, 1, 2, 3}) ||
		!bytes.Equal(message, before) {
		t.Errorf("appending to a value: %v, the message is %x", err, message)
	}
}

// FuzzSplit compares with another reader, whatever the bytes are.
func FuzzSplit(f *testing.F) {
	whole := encoded(f)
	for n := range whole {
		f.Add(whole[:n])
	}
	f.Add([]byte{3, 0, 1, 0})
	f.Add([]byte{0, 0, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 {
			return
		}
		var got, want [256][]byte
		if err := nlattr.Split(b, got[:]); err != nil {
			require.True(t, errors.Is(err, nlattr.ErrCut), "%v", err)
			return // the other reader also takes a length of 0, which no kernel writes
		}
		d, err := netlink.NewAttributeDecoder(b)
		require.NoError(t, err, "the other reader")
		for d.Next() {
			if int(d.Type()) < len(want) {
				want[d.Type()] = d.Bytes()
			}
		}
		require.True(t, d.Err() == nil, "the other reader: %v", d.Err())
		for kind := range got {
			assert.True(t, bytes.Equal(got[kind], want[kind]) && (got[kind] == nil) == (want[kind] == nil),
				"attribute %d: %x, the other reader %x", kind, got[kind], want[kind])
		}
	})
}
