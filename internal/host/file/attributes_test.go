package file_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/host/file"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// acl grants user 1 (daemon) rw, with the mask rw: the format of system.posix_acl_access (linux/posix_acl_xattr.h).
const acl = "\x02\x00\x00\x00" + // version
	"\x01\x00\x06\x00\xff\xff\xff\xff" + // the owner: rw
	"\x02\x00\x06\x00\x01\x00\x00\x00" + // user 1: rw
	"\x04\x00\x04\x00\xff\xff\xff\xff" + // the group: r
	"\x10\x00\x06\x00\xff\xff\xff\xff" + // mask: rw
	"\x20\x00\x00\x00\xff\xff\xff\xff" // others: nothing

// TestReplaceKeepsAttributes: a replaced file keeps its ACL and extended attributes, and gets the requested mode.
func TestReplaceKeepsAttributes(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(name, []byte("old"), 0o600))
	want := map[string]string{"user.note": "kept", "system.posix_acl_access": acl}
	for key, value := range want {
		err := unix.Setxattr(name, key, []byte(value), 0)
		hosttest.Need(t, err == nil, "a temporary directory with extended attributes and ACLs")
	}
	require.NoError(t, file.Replace(name, []byte("new"), 0o660))
	for key, value := range want {
		b := make([]byte, 100)
		n, err := unix.Getxattr(name, key, b)
		if err != nil || string(b[:n]) != value {
			t.Errorf("%s is %q, %v", key, b[:max(n, 0)], err)
		}
	}
	text, err := os.ReadFile(name)
	info, statErr := os.Stat(name)
	assert.True(t, err == nil && statErr == nil && string(text) == "new" && info.Mode() == 0o660,
		"%q, %v, %v, %v", text, info.Mode(), err, statErr)
}
