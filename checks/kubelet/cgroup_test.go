package kubelet_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
)

func TestCgroupVersion(t *testing.T) {
	const v1 = "tmpfs /sys/fs/cgroup tmpfs ro 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /sys/fs/cgroup/memory cgroup " +
		"rw,memory 0 0\n"
	checkstest.RunOne(t, "cgroup.version", checks.Run, []checkstest.Case{
		{What: "v1, hybrid", Node: checkstest.Node(map[string]string{"/proc/mounts": v1}, nil), Want: `warn
want: v2
got: v1
evidence: /proc/mounts: tmpfs at /sys/fs/cgroup
remedy: boot with systemd.unified_cgroup_hierarchy=1 (and without systemd.legacy_systemd_cgroup_controller), or set failCgroupV1: false`},
		{What: "v2", Node: checkstest.Node(map[string]string{"/proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"}, nil),
			Want: "pass\nwant: v2\ngot: v2\nevidence: /proc/mounts: cgroup2 at /sys/fs/cgroup"},
		{What: "v1, tolerated", Node: checkstest.Node(map[string]string{"/proc/mounts": v1, kubeadmConfig: "failCgroupV1: false\n"},
			nil), Want: `pass
want: v2, or failCgroupV1 false
got: v1, and failCgroupV1 false
evidence: /proc/mounts: tmpfs at /sys/fs/cgroup
evidence: /var/lib/kubelet/config.yaml: failCgroupV1: false`},
		{What: "nothing mounted", Node: checkstest.Node(map[string]string{"/proc/mounts": "proc /proc proc rw 0 0\n"}, nil),
			Want: "unknown\nerror: /proc/mounts lists no mount at /sys/fs/cgroup"},
	})
}
