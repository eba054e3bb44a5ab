package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/policy"
	"nodegate/units"
)

// TestCheckBoot: install is refused only for a cycle that has a unit of nodegate. systemd itself computes the boot.
func TestCheckBoot(t *testing.T) {
	hosttest.NeedProgram(t, "/usr/lib/systemd/systemd")
	const dir = "/etc/systemd/system/"
	oneshot := func(unit string) string {
		return "[Unit]\nDefaultDependencies=no\n" + unit + "[Service]\nType=oneshot\nExecStart=/bin/true\n"
	}
	installed := map[string]string{
		dir + "multi-user.target":   "[Unit]\nWants=sysinit.target network-pre.target\n",
		dir + "sysinit.target":      "[Unit]\nDefaultDependencies=no\n",
		dir + "network-pre.target":  "[Unit]\nAfter=sysinit.target\n",
		dir + "local-fs-pre.target": "[Unit]\n",
	}
	for name, c := range map[string]struct {
		setup         string // a unit of the image
		refused, warn bool
	}{
		"right":     {setup: oneshot("After=network-pre.target\n")},
		"ours":      {setup: oneshot("After=network-pre.target\nBefore=nodegate-apply.service\n"), refused: true},
		"the image": {setup: oneshot("After=network-pre.target\nBefore=sysinit.target\n"), warn: true},
	} {
		root := t.TempDir()
		for file, text := range installed {
			writeBelow(t, root, file, text)
		}
		writeBelow(t, root, dir+"setup.service", c.setup)
		writeBelow(t, root, dir+"multi-user.target.wants/setup.service", "")
		h, err := host.Open(root)
		require.NoError(t, err)
		defer h.Close()
		planned := plannedHost(h, []units.File{
			{Path: dir + "nodegate-apply.service", Content: []byte(oneshot("Before=network-pre.target\n"))},
			{Path: dir + "multi-user.target.wants/nodegate-apply.service", Target: dir + "nodegate-apply.service"},
		})
		var printed bytes.Buffer
		err = checkBoot(t.Context(), planned, policy.Gate{Unit: "kubelet.service"}, &printed)
		if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "nodegate-apply.service after setup.service after network-pre.target") {
			t.Errorf("%s: %v", name, err)
		}
		warned := strings.Contains(printed.String(), "warning: systemd drops a unit")
		assert.True(t, warned == c.warn, "%s: %s", name, &printed)
	}
}

func writeBelow(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}
