package ipvs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// TestFamily: the kernel's list of families is read, and one that is not there is said to be missing.
func TestFamily(t *testing.T) {
	c, err := dialFamily(t.Context(), "nlctrl")
	require.NoError(t, err)
	defer c.Close()
	assert.Equal(t, c.family, unix.GENL_ID_CTRL, "the controller is family")
	_, err = dialFamily(t.Context(), "NGNONE")
	assert.True(t, errors.Is(err, fs.ErrNotExist), "a family that nobody has: %v", err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = dialFamily(ended, "nlctrl")
	assert.True(t, errors.Is(err, context.Canceled), "after the end: %v", err)
}

// TestAbsent: a kernel without IPVS still has none when it has been asked.
func TestAbsent(t *testing.T) {
	const file = "/proc/thread-self/net/ip_vs"
	_, before := os.Stat(file)
	used, err := InUse(t.Context())
	_, after := os.Stat(file)
	assert.True(t, (after == nil) == (before == nil), "before: %v, after: %v", before, after)
	assert.True(t, before == nil || !used && err == nil, "%v, %v without IPVS", used, err)
	_, err = Read(t.Context())
	assert.True(t, before == nil || errors.Is(err, fs.ErrNotExist), "%v without IPVS", err)
}

// TestAddresses: the loopback's address is the node's.
func TestAddresses(t *testing.T) {
	all := &ruleset.IPVS{}
	err := addresses(all)
	assert.True(t, err == nil && len(all.Local) != 0, "%v, %v", all, err)
}
