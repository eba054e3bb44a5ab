//go:build vm

package vm

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// checkBootOrders lets a tree's own systemd compute the boot of the tree with nodegate, networkd, cloud-init and a mount that waits for
// the network: none is a cycle. With nodegate-apply.service after local-fs.target, as it was once, each mount closes one.
func checkBootOrders(t *testing.T, tree string) {
	t.Helper()
	unit := func(name, text string) {
		putFile(t, filepath.Join(tree, "etc/systemd/system", name), "[Unit]\nDefaultDependencies=no\n"+text+
			"[Service]\nType=oneshot\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n")
		mustRun(t, "systemctl", "--root", tree, "enable", name)
	}
	// The ordering of cloud-init 22.4, as its package has it.
	unit("cloud-init-local.service", "Wants=network-pre.target\nBefore=network-pre.target sysinit.target\n")
	unit("cloud-init.service", "Wants=cloud-init-local.service\nAfter=cloud-init-local.service systemd-networkd-wait-online.service\n"+
		"Before=network-online.target sysinit.target\n")
	unit("cloud-config.service", "Wants=network-online.target\nAfter=network-online.target\n")
	mustRun(t, "systemctl", "--root", tree, "enable", "systemd-networkd.service", "systemd-networkd-wait-online.service")
	fstab := filepath.Join(tree, "etc/fstab")
	before := require.ReadFile(t, fstab)
	late := filepath.Join(tree, "etc/systemd/system/nodegate-apply.service.d/late.conf")
	for what, line := range map[string]string{
		"cloud-init":     "/dev/nvme1n1 /var/lib/kubelet ext4 defaults,x-systemd.requires=cloud-init.service 0 2\n",
		"network-online": "/dev/sdb /var/lib/kubelet ext4 defaults,x-systemd.requires=network-online.target 0 2\n",
		"NFS":            "server:/x /var/lib/kubelet nfs defaults 0 0\n",
		"LVM":            "/dev/vg/kubelet /var/lib/kubelet ext4 defaults,x-systemd.after=blk-availability.service 0 2\n",
	} {
		putFile(t, fstab, line)
		verdict, found := bootOrder(t, tree)
		assert.True(t, verdict == "pass", "%s: %s: %s", what, verdict, found)
		if what != "cloud-init" && what != "network-online" {
			continue // these mounts are not before local-fs.target, or wait for nothing of the network
		}
		putFile(t, late, "[Unit]\nAfter=local-fs.target\n")
		if verdict, found := bootOrder(t, tree); verdict != "fail" || !strings.Contains(found, "nodegate-apply.service") {
			t.Errorf("%s, with nodegate-apply.service after local-fs.target: %s: %s", what, verdict, found)
		}
		require.NoError(t, os.RemoveAll(filepath.Dir(late)))
	}
	putFile(t, fstab, string(before))
	mustRun(t, "systemctl", "--root", tree, "disable", "cloud-config.service", "cloud-init.service", "cloud-init-local.service",
		"systemd-networkd.service", "systemd-networkd-wait-online.service")
}

// bootOrder returns the verdict of image.boot-order in a chroot of the tree, and what the check found.
func bootOrder(t *testing.T, tree string) (verdict, found string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--fork", "sh", "-euc", `
mount --rbind /dev "$0/dev"
mount --rbind /sys "$0/sys"
mount -t proc proc "$0/proc"
mount -t tmpfs tmpfs "$0/run"
mkdir "$0/run/systemd"
exec chroot "$0" /usr/local/bin/nodegate check --stage image --format json image.boot-order`, tree)
	out, err := cmd.Output()
	var report struct {
		Results []struct{ Verdict, Got, Error string }
	}
	require.True(t, json.Unmarshal(out, &report) == nil && len(report.Results) == 1, "check: %v\n%s", err, out)
	return report.Results[0].Verdict, report.Results[0].Got + report.Results[0].Error
}
