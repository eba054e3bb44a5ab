package boot_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/boot"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// image returns the root of an image with the units of this machine's systemd, and more files.
func image(t *testing.T, more map[string]string) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "usr/lib/systemd")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.CopyFS(dir+"/system", os.DirFS("/usr/lib/systemd/system")))
	for name, text := range more {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		err := os.WriteFile(path, []byte(text), 0o644)
		if target, isLink := strings.CutPrefix(text, "-> "); isLink {
			err = errors.Join(os.Remove(path), os.Symlink(target, path))
		}
		require.NoError(t, err)
	}
	return root
}

// TestCycles: systemd finds the cycles of an image, also those of its fstab, with the links that units of images have.
func TestCycles(t *testing.T) {
	hosttest.NeedProgram(t, "/usr/lib/systemd/systemd")
	const etc = "etc/systemd/system/"
	service := func(unit string) string { return "[Unit]\n" + unit + "[Service]\nType=oneshot\nExecStart=/bin/true\n" }
	early := "DefaultDependencies=no\nBefore=network-pre.target\nWants=network-pre.target\n"
	a := service("After=b.service\n")
	cloud := map[string]string{
		etc + "cloud-init.service":                         service("DefaultDependencies=no\nAfter=network-pre.target\nBefore=sysinit.target\n"),
		etc + "apply.service":                              service(early + "After=local-fs.target\n"),
		etc + "multi-user.target.wants/apply.service":      "-> /etc/systemd/system/apply.service",
		etc + "multi-user.target.wants/cloud-init.service": "-> /usr/lib/systemd/system/cloud-init.service",
		"etc/fstab": "/dev/nvme1n1 /var/lib/kubelet ext4 defaults,x-systemd.requires=cloud-init.service 0 0\n",
	}
	for what, c := range map[string]struct {
		files map[string]string
		want  []string // units of the only cycle
	}{
		"none": {nil, nil},
		"two services": {map[string]string{etc + "a.service": a, etc + "b.service": service("After=a.service\n"),
			etc + "multi-user.target.wants/a.service": "-> ../a.service", etc + "multi-user.target.wants/b.service": "-> ../b.service"},
			[]string{"a.service", "b.service"}},
		"not part of the boot": {map[string]string{etc + "a.service": a, etc + "b.service": service("After=a.service\n")}, nil},
		"masked": {map[string]string{etc + "a.service": a, etc + "b.service": "-> /dev/null", "usr/lib/systemd/system/b.service": service("After=a.service\n"),
			etc + "multi-user.target.wants/a.service": "-> ../a.service", etc + "multi-user.target.wants/b.service": "-> ../b.service"}, nil},
		"a drop-in": {map[string]string{etc + "a.service": a, etc + "b.service": service(""), etc + "b.service.d/after.conf": "[Unit]\nAfter=a.service\n",
			etc + "multi-user.target.requires/a.service": "-> ../a.service", etc + "a.service.wants/b.service": "-> /nowhere/b.service"},
			[]string{"a.service", "b.service"}},
		"another target, by an alias": {map[string]string{etc + "node.target": "[Unit]\nRequires=multi-user.target\nAllowIsolate=yes\n",
			etc + "default.target": "-> /etc/systemd/system/node.target", etc + "a.service": a, etc + "b.service": service("After=c.service\n"),
			etc + "c.service": "-> a.service", etc + "node.target.wants/a.service": "-> ../a.service", etc + "node.target.wants/b.service": "-> ../b.service"},
			[]string{"a.service", "b.service"}},
		"a mount of fstab": {cloud, []string{"apply.service", "local-fs.target", "var-lib-kubelet.mount", "cloud-init.service", "network-pre.target"}},
	} {
		h, err := host.Open(image(t, c.files))
		require.NoError(t, err)
		b, err := boot.Test(t.Context(), h.Files, "kubelet.service")
		found := b.Cycles
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if len(found) != min(len(c.want), 1) {
			t.Errorf("%s: %v", what, found)
			continue
		}
		for _, unit := range c.want {
			assert.True(t, found[0].Has(unit), "%s: %v lacks %s", what, found[0], unit)
		}
	}
}
