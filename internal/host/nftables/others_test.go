package nftables

import (
	"encoding/hex"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestTypedByValue: user data of sets as two releases of nft write them. The last column shows
// whether `nft list sets` of nft 1.0.6 crashes.
func TestTypedByValue(t *testing.T) {
	for _, c := range []struct {
		set, written, data string
		crashes            bool
	}{
		{"type ifname", "1.1.3", "00040100000003080004040000000100", true},
		{"type ipv4_addr", "1.1.3", "00040200000003080004040000000100", true},
		{"type ipv4_addr; comment hi", "1.1.3", "000402000000030800040400000001000703686900", true},
		{"map ipv4_addr : verdict", "1.1.3", "0004020000000104000000000308000404000000010004080004040000000100060400000000", true},
		{"typeof ip saddr", "1.1.3", "0004020000000314000407000000010c00040c00000001040b000000", false},
		{"map typeof ip saddr : meta mark", "1.1.3",
			"0004020000000104010000000314000407000000010c00040c00000001040b000000040e0004090000000106000403000000060400000000", false},
		{"type ipv4_addr . inet_service", "1.1.3", "000400000000031200040d000000010a00000004040000000100", false},
		{"type ipv4_addr", "1.0.6", "000402000000", false},
		{"map ipv4_addr : verdict", "1.0.6", "000402000000010400000000060400000000", false},
		{"type ipv4_addr . inet_service", "1.0.6", "000400000000030800040d0000000100", false},
		{"cut off", "", "0004020000000308000404", false},
		{"none", "", "", false},
	} {
		data, err := hex.DecodeString(c.data)
		require.NoError(t, err)
		assert.Equal(t, typedByValue(data), c.crashes, "%s of nft %s", c.set, c.written)
	}
}

func FuzzOthers(f *testing.F) {
	for _, seed := range []string{"00040100000003080004040000000100", "2c000180090001006374000001", ""} {
		b, err := hex.DecodeString(seed)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		typedByValue(b)
	})
}
