package image_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
)

func TestImageSwap(t *testing.T) {
	const kubeletConfig = "/var/lib/kubelet/config.yaml"
	fails := func(got, evidence, remedy string) string {
		return "fail\nwant: no swap, or failSwapOn false\ngot: swap by " + got + "\nevidence: " + evidence + "\nremedy: run `" + remedy +
			"`, or set failSwapOn: false in kubelet's configuration"
	}
	const off = "pass\nwant: no swap\ngot: no swap"
	checkstest.RunOne(t, "image.swap", checks.Image, []checkstest.Case{
		{What: "none", Tree: map[string]string{"/etc/fstab": "# /swapfile none swap sw 0 0\nUUID=1 / ext4 defaults 0 1\n"}, Want: off},
		{What: "noauto", Tree: map[string]string{"/etc/fstab": "/swapfile none swap noauto 0 0\n"}, Want: off},
		{What: "fstab", Tree: map[string]string{"/etc/fstab": "UUID=1 / ext4 defaults 0 1\n/swapfile none swap sw 0 0\n"},
			Want: fails("/etc/fstab", "/etc/fstab: /swapfile none swap sw 0 0", `sed -i -E '/^\s*[^#[:space:]]\S*\s+\S+\s+swap\s/d' ROOT/etc/fstab`)},
		{What: "fstab, tolerated", Tree: map[string]string{"/etc/fstab": "/swapfile none swap sw 0 0\n", kubeletConfig: "failSwapOn: false\n"},
			Want: "pass\nwant: no swap, or failSwapOn false\ngot: swap, and failSwapOn false\nevidence: /etc/fstab: /swapfile none swap sw 0 0\n" +
				"evidence: /var/lib/kubelet/config.yaml: failSwapOn: false"},
		{What: "fstab, not tolerated", Tree: map[string]string{"/etc/fstab": "/dev/sda2 swap swap sw\n", kubeletConfig: "failSwapOn: true\n"},
			Want: fails("/etc/fstab", "/etc/fstab: /dev/sda2 swap swap sw", `sed -i -E '/^\s*[^#[:space:]]\S*\s+\S+\s+swap\s/d' ROOT/etc/fstab`)},
		{What: "fstab, k3s", Policy: `gate { unit = "k3s.service" }`, Tree: map[string]string{"/etc/fstab": "/dev/sda2 swap swap sw\n"},
			Want: "skipped\nskipped: k3s and RKE2 start kubelet with --fail-swap-on=false"},
		{What: "unit", Tree: map[string]string{"/etc/systemd/system/swapfile.swap": "[Swap]\nWhat=/swapfile\n",
			"/etc/systemd/system/swap.target.wants/swapfile.swap": "-> ../swapfile.swap"},
			Want: fails("swapfile.swap", "/etc/systemd/system/swap.target.wants/swapfile.swap: enabled",
				"rm ROOT/etc/systemd/system/swap.target.wants/swapfile.swap")},
		{What: "unit of a package", Tree: map[string]string{"/usr/lib/systemd/system/swap.target.wants/swapfile.swap": "-> ../swapfile.swap"},
			Want: fails("swapfile.swap", "/usr/lib/systemd/system/swap.target.wants/swapfile.swap: enabled",
				"ln -sf /dev/null ROOT/etc/systemd/system/swapfile.swap")},
		{What: "masked unit", Tree: map[string]string{"/usr/lib/systemd/system/swap.target.wants/swapfile.swap": "-> ../swapfile.swap",
			"/etc/systemd/system/swapfile.swap": "-> /dev/null"}, Want: off},
		{What: "unit that is not enabled", Tree: map[string]string{"/etc/systemd/system/swapfile.swap": "[Swap]\nWhat=/swapfile\n"}, Want: off},
	})
}

func TestImageMounts(t *testing.T) {
	const good = "pass\nwant: file systems that kubelet and Pods can use\ngot: file systems that kubelet and Pods can use"
	wants := func(verdict, got, evidence, remedy string) string {
		return verdict + "\nwant: file systems that kubelet and Pods can use\ngot: " + got + "\nevidence: " + evidence + "\nremedy: " + remedy
	}
	fstab := func(lines string) map[string]string {
		return map[string]string{"/etc/fstab": "UUID=1 / ext4 defaults 0 1\n" + lines}
	}
	checkstest.RunOne(t, "image.mounts", checks.Image, []checkstest.Case{
		{What: "none", Tree: map[string]string{}, Want: good},
		{What: "CIS", Tree: fstab("UUID=2 /var ext4 nodev,nosuid 0 2\nUUID=3 /var/log ext4 nodev,nosuid,noexec 0 2\ntmpfs /tmp tmpfs noexec 0 0\n"),
			Want: good},
		{What: "noexec", Tree: fstab("UUID=2 /var/lib/kubelet ext4 defaults,noexec 0 2\n"),
			Want: wants("fail", "/var/lib/kubelet is noexec", "/etc/fstab: UUID=2 /var/lib/kubelet ext4 defaults,noexec 0 2",
				`run `+"`"+`sed -i -E 's#^(\S+\s+/var/lib/kubelet/?\s+\S+\s+(\S*,)?)noexec(,|\s|$)#\1exec\3#' ROOT/etc/fstab`+"`")},
		{What: "noexec of a directory above", Tree: fstab("UUID=2 /var ext4 nodev,noexec 0 2\n"),
			Want: wants("fail", "/var is noexec", "/etc/fstab: UUID=2 /var ext4 nodev,noexec 0 2",
				`run `+"`"+`sed -i -E 's#^(\S+\s+/var/?\s+\S+\s+(\S*,)?)noexec(,|\s|$)#\1exec\3#' ROOT/etc/fstab`+"`")},
		{What: "noexec above, exec below", Tree: fstab("UUID=2 /var ext4 noexec 0 2\nUUID=3 /var/lib ext4 defaults 0 2\n"), Want: good},
		{What: "noexec above, kubelet and the image's runtime on file systems of their own",
			Tree: fstab("UUID=2 /var ext4 noexec 0 2\nUUID=3 /var/lib/kubelet ext4 defaults 0 2\nUUID=4 /var/lib/containerd ext4 defaults 0 2\n"), Want: good},
		{What: "noexec of the runtime", Tree: fstab("UUID=2 /var/lib/containerd xfs noexec 0 2\n"),
			Want: wants("warn", "/var/lib/containerd is noexec", "/etc/fstab: UUID=2 /var/lib/containerd xfs noexec 0 2",
				`run `+"`"+`sed -i -E 's#^(\S+\s+/var/lib/containerd/?\s+\S+\s+(\S*,)?)noexec(,|\s|$)#\1exec\3#' ROOT/etc/fstab`+"`")},
		{What: "user implies noexec", Tree: fstab("UUID=2 /var/lib/kubelet ext4 user 0 2\n"),
			Want: wants("fail", "/var/lib/kubelet is noexec", "/etc/fstab: UUID=2 /var/lib/kubelet ext4 user 0 2",
				`run `+"`"+`sed -i -E 's#^(\S+\s+/var/lib/kubelet/?\s+\S+\s+(\S*,)?)user(,|\s|$)#\1user,exec\3#' ROOT/etc/fstab`+"`")},
		{What: "user and exec", Tree: fstab("UUID=2 /var/lib/kubelet ext4 user,exec 0 2\n"), Want: good},
		{What: "read-only", Tree: fstab("UUID=2 /var/lib/kubelet ext4 ro 0 2\n"),
			Want: wants("fail", "/var/lib/kubelet is read-only", "/etc/fstab: UUID=2 /var/lib/kubelet ext4 ro 0 2",
				`run `+"`"+`sed -i -E 's#^(\S+\s+/var/lib/kubelet/?\s+\S+\s+(\S*,)?)ro(,|\s|$)#\1rw\3#' ROOT/etc/fstab`+"`")},
		{What: "NFS", Tree: fstab("nas:/x /var/lib/containerd nfs4 rw 0 0\n"),
			Want: wants("fail", "/var/lib/containerd is on nfs4", "/etc/fstab: nas:/x /var/lib/containerd nfs4 rw 0 0",
				"mount ext4 or xfs there, in ROOT/etc/fstab")},
		{What: "the root decides elsewhere", Tree: map[string]string{"/etc/fstab": "/dev/root / ext4 ro,noexec 0 0\n"}, Want: good},
		{What: "noauto", Tree: fstab("UUID=2 /var/lib/kubelet ext4 noauto,noexec 0 2\n"), Want: good},
	})
}

func TestImageFapolicyd(t *testing.T) {
	const link = "/etc/systemd/system/multi-user.target.wants/fapolicyd.service"
	const on = "pass\nwant: off, or allows containers\ngot: off, or allows containers\nevidence: " + link + ": enabled\nevidence: "
	checkstest.RunOne(t, "image.fapolicyd", checks.Image, []checkstest.Case{
		{What: "not enabled", Tree: map[string]string{"/usr/lib/systemd/system/fapolicyd.service": "[Service]\n"},
			Want: "pass\nwant: off, or allows containers\ngot: off, or allows containers\nevidence: fapolicyd.service: not enabled"},
		{What: "enabled", Tree: map[string]string{link: "", "/etc/fapolicyd/fapolicyd.conf": "permissive = 0\n", "/etc/fapolicyd/rules.d/90-deny-execute.rules": "deny_audit perm=execute all : all\n"},
			Want: "warn\nwant: off, or allows containers\ngot: fapolicyd is enabled, without a rule for containers\nevidence: " + link +
				": enabled\nremedy: run `for d in /var/lib/kubelet/ /var/lib/containerd/ /var/lib/containers/ /var/lib/rancher/ /run/containerd/ /run/k3s/ /opt/cni/; " +
				"do echo \"allow perm=any all : dir=$d\"; done >ROOT/etc/fapolicyd/rules.d/80-kubernetes.rules`"},
		{What: "permissive", Tree: map[string]string{link: "", "/etc/fapolicyd/fapolicyd.conf": "permissive = 1\n"},
			Want: on + "/etc/fapolicyd/fapolicyd.conf: permissive = 1"},
		{What: "with RKE2's rules", Tree: map[string]string{link: "", "/etc/fapolicyd/rules.d/80-rke2.rules": "allow perm=any all : dir=/var/lib/rancher/\n"},
			Want: on + "/etc/fapolicyd/rules.d/*.rules: rule that allows the directories of a node"},
	})
}
