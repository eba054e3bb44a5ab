package kubelet_test

import (
	"syscall"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// TestRootDirBehindLinks: statfs(2) follows symbolic links, and the mount that it tells of is the one to judge.
func TestRootDirBehindLinks(t *testing.T) {
	const readOnlyRoot = "/dev/vda / ext4 ro 0 0\n/dev/vdb /mnt/disk ext4 rw 0 0\n"
	const readOnlyDisk = "/dev/vda / ext4 rw 0 0\n/dev/vdb /mnt/disk ext4 ro 0 0\n"
	node := func(mounts string, links map[string]string) *hosttest.Machine {
		return withUnit("", with(links, "/proc/1/mounts", mounts))
	}
	const right = "pass\nwant: a file system to write to\ngot: a file system to write to"
	wrong := func(evidence string) string {
		return "fail\nwant: a file system to write to\ngot: read-only\n" + evidence + "\nremedy: see why it is read-only (dmesg: a file system " +
			"with errors is mounted so), or make space: crictl rmi --prune, journalctl --vacuum-size=100M"
	}
	const onRoot, onDisk = "evidence: /proc/1/mounts: /dev/vda / ext4 ro", "evidence: /proc/1/mounts: /dev/vdb /mnt/disk ext4 ro"
	itself := map[string]string{"/var/lib/kubelet": "-> /mnt/disk/kubelet"}
	notMade := node(readOnlyRoot, map[string]string{"/var/lib": "-> /mnt/disk"})
	notMade.Refuse = map[string]error{"s /var/lib/kubelet": syscall.ENOENT}
	checkstest.RunOne(t, "kubelet.root-dir", checks.Boot, []checkstest.Case{
		{What: "no link", Node: node(readOnlyRoot, nil), Want: wrong(onRoot)},
		{What: "its folder", Node: node(readOnlyRoot, itself), Want: right},
		{What: "what its folder is in, by a relative link", Node: node(readOnlyRoot, map[string]string{"/var": "-> mnt/disk/var"}), Want: right},
		{What: "a link in a link, with ..", Node: node(readOnlyRoot, map[string]string{"/var/lib": "-> ../data/./state/",
			"/data": "-> /mnt/disk"}), Want: right},
		{What: "its folder is not made", Node: notMade, Want: right},
		{What: "out of the disk that can be written", Node: node(readOnlyRoot+"/dev/vdc /var/lib ext4 rw 0 0\n",
			map[string]string{"/var/lib/kubelet": "-> /kubelet"}), Want: wrong("evidence: /var/lib/kubelet: -> /kubelet\n" + onRoot)},
		{What: "to a disk that cannot be written", Node: node(readOnlyDisk, itself),
			Want: wrong("evidence: /var/lib/kubelet: -> /mnt/disk/kubelet\n" + onDisk)},
		{What: "links that lead nowhere end", Node: node(readOnlyRoot, map[string]string{"/var": "-> /var"}), Want: wrong(onRoot)},
	})

	on := func(h *host.Host) string {
		return checkstest.Text(checkstest.On(t.Context(), t, h, checks.Boot, "kubelet.root-dir", ""))
	}
	recording, snapshot := host.Record(node(readOnlyDisk, itself).Host())
	now := on(recording)
	checkstest.Equal(t, "a replay", now, on(host.Replay(snapshot)))
	clear(snapshot.SymLink)
	checkstest.Equal(t, "an older recording, which was not asked for links", right, on(host.Replay(snapshot)))
}
