package units_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestNoCycle: systemd itself, in its test mode and as an ordinary user, computes the boot of an image with networkd and cloud-init
// that mounts a directory in a way that waits for the network. Installing nodegate adds no ordering cycle.
func TestNoCycle(t *testing.T) {
	hosttest.NeedRoot(t) // to become an ordinary user, whose test run touches nothing
	systemd := "/usr/lib/systemd/systemd"
	hosttest.NeedProgram(t, systemd)
	// The ordering of cloud-init 22.4 and of systemd 252's networkd units, as their packages have it.
	image := map[string]string{
		"cloud-init-local.service": "[Unit]\nDefaultDependencies=no\nWants=network-pre.target\nBefore=network-pre.target sysinit.target\n" +
			"[Service]\nType=oneshot\nExecStart=/bin/true\n",
		"cloud-init.service": "[Unit]\nDefaultDependencies=no\nWants=cloud-init-local.service\nAfter=cloud-init-local.service " +
			"systemd-networkd-wait-online.service\nBefore=network-online.target sysinit.target\n[Service]\nType=oneshot\nExecStart=/bin/true\n",
		"systemd-networkd.service": "[Unit]\nDefaultDependencies=no\nAfter=network-pre.target systemd-sysusers.service systemd-sysctl.service\n" +
			"Before=network.target multi-user.target shutdown.target\nWants=network.target network-pre.target\n[Service]\nExecStart=/bin/true\n",
		"systemd-networkd-wait-online.service": "[Unit]\nDefaultDependencies=no\nRequires=systemd-networkd.service\nAfter=systemd-networkd.service\n" +
			"Before=network-online.target\n[Service]\nType=oneshot\nExecStart=/bin/true\n",
		"kubelet.service": "[Unit]\nWants=network-online.target cloud-init.service\nAfter=network-online.target\n" +
			"[Service]\nExecStart=/bin/true\n",
	}
	const from = "[Unit]\nBefore=local-fs.target\n%s\n[Mount]\nWhere=/var/lib/kubelet\nType=ext4\nWhat="
	for name, mount := range map[string]string{
		"cloud-init":     strings.Replace(from, "%s", "Requires=cloud-init.service\nAfter=cloud-init.service", 1) + "/dev/nvme1n1\n",
		"network-online": strings.Replace(from, "%s", "Wants=network-online.target\nAfter=network-online.target", 1) + "/dev/sdb\n",
		"NFS": "[Unit]\nDefaultDependencies=no\nAfter=network-online.target network.target remote-fs-pre.target\nBefore=remote-fs.target\n" +
			"Wants=network-online.target\n[Mount]\nWhere=/var/lib/kubelet\nType=nfs\nWhat=server:/x\n",
		"LVM": strings.Replace(from, "%s", "After=blk-availability.service", 1) + "/dev/vg/kubelet\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for up := dir; up != "/tmp" && up != "/"; up = filepath.Dir(up) {
				require.NoError(t, os.Chmod(up, 0o755))
			}
			etc := filepath.Join(dir, "etc/systemd/system")
			for _, links := range []string{"local-fs.target.wants", "multi-user.target.wants", "network-online.target.wants"} {
				require.NoError(t, os.MkdirAll(filepath.Join(etc, links), 0o755))
			}
			for unit, text := range image {
				require.NoError(t, os.WriteFile(filepath.Join(etc, unit), []byte(text), 0o644))
			}
			require.NoError(t, os.WriteFile(filepath.Join(etc, "var-lib-kubelet.mount"), []byte(mount), 0o644))
			wants := "local-fs.target.wants"
			if name == "NFS" {
				wants = "multi-user.target.wants"
			}
			require.NoError(t, os.Symlink("../var-lib-kubelet.mount", filepath.Join(etc, wants, "var-lib-kubelet.mount")))
			require.NoError(t, os.Symlink("../kubelet.service", filepath.Join(etc, "multi-user.target.wants/kubelet.service")))
			require.NoError(t, os.Symlink("../systemd-networkd.service", filepath.Join(etc, "multi-user.target.wants/systemd-networkd.service")))
			require.NoError(t, os.Symlink("../systemd-networkd-wait-online.service",
				filepath.Join(etc, "network-online.target.wants/systemd-networkd-wait-online.service")))
			cycles := func() string {
				cmd := exec.CommandContext(t.Context(), systemd, "--test", "--system", "--unit=multi-user.target")
				cmd.Env = []string{"SYSTEMD_UNIT_PATH=" + etc + ":/usr/lib/systemd/system", "SYSTEMD_LOG_TARGET=console", "PATH=/usr/sbin:/usr/bin"}
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
				out, err := cmd.CombinedOutput()
				require.True(t, err == nil && strings.Contains(string(out), "-> Unit kubelet.service"), "systemd --test: %v\n%.2000s", err, out)
				var found []string
				for line := range strings.Lines(string(out)) {
					if strings.Contains(line, "ordering cycle") {
						found = append(found, strings.TrimSpace(line))
					}
				}
				return strings.Join(found, "\n")
			}
			if found := cycles(); found != "" {
				t.Fatalf("the image itself has a cycle:\n%s", found)
			}
			for _, f := range files(t, policyOne, "one") {
				if !strings.HasPrefix(f.Path, "/etc/systemd/system/") {
					continue
				}
				path := filepath.Join(dir, f.Path)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				if f.Target != "" {
					require.NoError(t, os.Symlink(f.Target, path))
				} else {
					require.NoError(t, os.WriteFile(path, f.Content, 0o644))
				}
			}
			assert.Equal(t, cycles(), "", "with nodegate")
		})
	}
}
