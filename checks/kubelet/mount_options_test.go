package kubelet_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
)

// TestMountOptions: the volumes of Pods inherit the options of the file system of kubelet's directory.
func TestMountOptions(t *testing.T) {
	node := func(options string) *hosttest.Machine {
		return withUnit("", map[string]string{
			"/proc/mounts":      "/dev/vda / ext4 rw 0 0\n/dev/vdb /var/lib ext4 " + options + " 0 0\n",
			"/proc/1/mountinfo": "1 0 0:2 / / rw - rootfs none rw\n29 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda rw\n30 29 0:5 / /proc rw - proc proc rw\n",
		})
	}
	private := node("rw")
	private.Files["/proc/1/mountinfo"] = "29 1 254:1 / / rw,relatime - ext4 /dev/vda rw\n30 29 0:5 / /dev rw shared:2 - tmpfs udev rw\n"
	wrong := func(got, options string) string {
		return "warn\nwant: mounted, for programs and devices\ngot: /var/lib/kubelet is " + got + "\nevidence: /proc/mounts: /dev/vdb /var/lib ext4 " +
			options + "\nremedy: run `mount -o remount,exec,suid,dev /var/lib`, and correct /etc/fstab"
	}
	checkstest.RunOne(t, "kubelet.mounts", checks.Run, []checkstest.Case{
		{What: "none", Node: node("rw,relatime"), Want: "pass\nwant: mounted, for programs and devices\ngot: mounted, for programs and devices"},
		{What: "/ is private", Node: private, Want: "warn\nwant: mounted, for programs and devices\ngot: / is not shared\nevidence: /proc/1/mountinfo: 29 1 254:1 / / " +
			"rw,relatime - \nremedy: run `mount --make-rshared /`, at each boot before the runtime starts; systemd does that by itself"},
		{What: "noexec", Node: node("rw,noexec"), Want: wrong("noexec", "rw,noexec")},
		{What: "KubeVirt's devices", Node: node("rw,nosuid,nodev,relatime"), Want: wrong("nosuid, nodev", "rw,nosuid,nodev,relatime")},
	})
}
