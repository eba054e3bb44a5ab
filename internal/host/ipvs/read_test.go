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
	defer c.close()
	assert.Equal(t, c.family, unix.GENL_ID_CTRL, "the controller is family")
	if _, err := dialFamily(t.Context(), "NGNONE"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a family that nobody has: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dialFamily(ended, "nlctrl"); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

// TestAbsent: a kernel without IPVS still has none when it has been asked.
func TestAbsent(t *testing.T) {
	const file = "/proc/thread-self/net/ip_vs"
	_, before := os.Stat(file)
	used, err := InUse(t.Context())
	if _, after := os.Stat(file); (after == nil) != (before == nil) {
		t.Errorf("before: %v, after: %v", before, after)
	}
	if before != nil && (used || err != nil) {
		t.Errorf("%v, %v without IPVS", used, err)
	}
	if _, err := Read(t.Context()); before != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v without IPVS", err)
	}
}

// TestAddresses: the loopback's address is the node's.
func TestAddresses(t *testing.T) {
	all := &ruleset.IPVS{}
	if err := addresses(all); err != nil || len(all.Local) == 0 {
		t.Errorf("%v, %v", all, err)
	}
}
