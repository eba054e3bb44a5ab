package kubelet_test

import (
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

	on := func(h *host.Host) string {
		return checkstest.Text(checkstest.On(t.Context(), t, h, checks.Boot, "kubelet.root-dir", ""))
	}
	recording, snapshot := host.Record(node(readOnlyDisk, itself).Host())
	now := on(recording)
	checkstest.Equal(t, "a replay", now, on(host.Replay(snapshot)))
	clear(snapshot.Answers["symlinks"])
	checkstest.Equal(t, "an older recording without links", right, on(host.Replay(snapshot)))
}
