package units_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/policy"
	"nodegate/units"
)

// TestLinkAsSystemctl compares the symbolic link with the one that systemd's own tool makes.
func TestLinkAsSystemctl(t *testing.T) {
	hosttest.NeedProgram(t, "systemctl")
	root := node(t)
	_, err := units.Install(open(t, root), files(t, policyOne, "one"), false)
	require.NoError(t, err)
	wants := root + "/etc/systemd/system/multi-user.target.wants"
	ours, err := os.Readlink(wants + "/nodegate-apply.service")
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(wants))
	if out, err := exec.Command("systemctl", "--root="+root, "enable", "nodegate-apply.service").CombinedOutput(); err != nil {
		t.Fatalf("systemctl enable: %v\n%s", err, out)
	}
	theirs, err := os.Readlink(wants + "/nodegate-apply.service")
	assert.True(t, err == nil && ours == theirs, "our link points to %q, systemctl's to %q (%v)", ours, theirs, err)
}

// TestUnitsVerify runs `systemd-analyze verify` on the installed units.
func TestUnitsVerify(t *testing.T) {
	hosttest.NeedProgram(t, "systemd-analyze")
	root := t.TempDir()
	program := units.Copied([]byte("#!/bin/sh\n")).AllowingWritable()
	text := policy.File{Name: "a.hcl", Text: []byte(policyOne + `publish {}`)}
	_, err := units.Install(open(t, root), filesOf(t, program, text), false)
	require.NoError(t, err)
	dir := root + "/etc/systemd/system/"
	require.NoError(t, os.WriteFile(dir+"kubelet.service", []byte("[Service]\nExecStart=/bin/true\n"), 0o644))
	cmd := exec.Command("systemd-analyze", "verify", "--man=no", dir+"kubelet.service", dir+"nodegate-apply.service", dir+units.WatchUnit)
	cmd.Env = append(slices.Clone(os.Environ()), "SYSTEMD_UNIT_PATH="+dir+":")
	out, _ := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		// The binary is below the root, not on this machine.
		expected := strings.Contains(line, "is not executable") || strings.Contains(line, "Failed to create")
		assert.True(t, !strings.Contains(line, "nodegate") || expected, "systemd-analyze verify: %s", line)
	}
}
