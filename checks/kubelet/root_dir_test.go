package kubelet_test

import (
	"strings"
	"syscall"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// TestRootDirBehindLinks: statfs(2) follows symbolic links, so the check must inspect the mount at the target.
func TestRootDirBehindLinks(t *testing.T) {
	const readOnlyRoot = "/dev/vda / ext4 ro 0 0\n/dev/vdb /mnt/disk ext4 rw 0 0\n"
	const readOnlyDisk = "/dev/vda / ext4 rw 0 0\n/dev/vdb /mnt/disk ext4 ro 0 0\n"
	node := func(mounts string, links map[string]string) *hosttest.Machine {
		return withUnit("", with(links, "/proc/1/mounts", mounts))
	}
	const right = "pass\nwant: a writable file system with space\ngot: a writable file system with space"
	wrong := func(evidence string) string {
		return "fail\nwant: a writable file system with space\ngot: read-only\n" + evidence + "\nremedy: find out why it is read-only " +
			"(`dmesg`: the kernel remounts a file system with errors), or free space: run `crictl rmi --prune` or `journalctl " +
			"--vacuum-size=100M`"
	}
	const onRoot, onDisk = "evidence: /proc/1/mounts: /dev/vda / ext4 ro", "evidence: /proc/1/mounts: /dev/vdb /mnt/disk ext4 ro"
	itself := map[string]string{"/var/lib/kubelet": "-> /mnt/disk/kubelet"}
	notMade := node(readOnlyRoot, map[string]string{"/var/lib": "-> /mnt/disk"})
	notMade.Refuse = map[string]error{"s /var/lib/kubelet": syscall.ENOENT}
	checkstest.RunOne(t, "kubelet.root-dir", checks.Boot, []checkstest.Case{
		{What: "no link", Node: node(readOnlyRoot, nil), Want: wrong(onRoot)},
		{What: "its directory is a link", Node: node(readOnlyRoot, itself), Want: right},
		{What: "its parent directory is a relative link", Node: node(readOnlyRoot, map[string]string{"/var": "-> mnt/disk/var"}), Want: right},
		{What: "a link in a link, with ..", Node: node(readOnlyRoot, map[string]string{"/var/lib": "-> ../data/./state/",
			"/data": "-> /mnt/disk"}), Want: right},
		{What: "its directory does not exist", Node: notMade, Want: right},
		{What: "a link out of the writable disk", Node: node(readOnlyRoot+"/dev/vdc /var/lib ext4 rw 0 0\n",
			map[string]string{"/var/lib/kubelet": "-> /kubelet"}), Want: wrong("evidence: /var/lib/kubelet: -> /kubelet\n" + onRoot)},
		{What: "a link to a read-only disk", Node: node(readOnlyDisk, itself),
			Want: wrong("evidence: /var/lib/kubelet: -> /mnt/disk/kubelet\n" + onDisk)},
		{What: "a link to itself", Node: node(readOnlyRoot, map[string]string{"/var": "-> /var"}), Want: wrong(onRoot)},
	})

	filled := func(percent uint64, config string) *hosttest.Machine {
		m := withUnit("--config="+kubeadmConfig, map[string]string{"/proc/1/mounts": "/dev/vda / ext4 rw 0 0\n", kubeadmConfig: header + config})
		m.Spaces = map[string]host.Space{"/var/lib/kubelet": {Free: 1 << 30, Available: (100 - percent) << 30, Size: 100 << 30, FreeInodes: 1, Inodes: 9}}
		return m
	}
	evicts := func(available, limit string) string {
		got := available + " % available, less than the " + limit + " % at which kubelet evicts Pods"
		return "warn\nwant: a writable file system with space\ngot: " + got + "\nevidence: /var/lib/kubelet: " + got +
			strings.TrimPrefix(wrong(""), "fail\nwant: a writable file system with space\ngot: read-only\n")
	}
	checkstest.RunOne(t, "kubelet.root-dir", checks.Boot, []checkstest.Case{
		{What: "93 % full", Node: filled(93, ""), Want: evicts("7", "10")},
		{What: "90 % full", Node: filled(90, ""), Want: right},
		{What: "a higher threshold", Node: filled(80, "evictionHard: {nodefs.available: 25%}\n"), Want: evicts("20", "25")},
		{What: "a threshold for memory only", Node: filled(93, "evictionHard: {memory.available: 100Mi}\n"), Want: right},
		{What: "a threshold in bytes", Node: filled(93, "evictionHard: {nodefs.available: 1Gi}\n"), Want: right},
	})
	on := func(h *host.Host) string {
		return checkstest.Text(checkstest.On(t.Context(), t, h, checks.Boot, "kubelet.root-dir", ""))
	}
	recording, snapshot := host.Record(node(readOnlyDisk, itself).Host())
	now := on(recording)
	checkstest.Equal(t, "a replay", now, on(host.Replay(snapshot)))
}
