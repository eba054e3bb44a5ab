package kubelet_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
)

func TestSwap(t *testing.T) {
	const header = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	const on = header + "/dev/sda2                               partition\t2097148\t\t0\t\t-2\n/swapfile file 1048572 0 -3\n"
	const unset = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	checkstest.RunOne(t, "swap", checks.Run, []checkstest.Case{
		{What: "on", Node: checkstest.Node(map[string]string{"/proc/swaps": on, kubeadmConfig: unset}, nil), Want: `fail
want: no swap, or failSwapOn false
got: swap on /dev/sda2, /swapfile
evidence: /proc/swaps: /dev/sda2 partition 2097148 0 -2
evidence: /proc/swaps: /swapfile file 1048572 0 -3
remedy: run ` + "`swapoff /dev/sda2 /swapfile; sed -i -E '/^\\s*[^#[:space:]]\\S*\\s+\\S+\\s+swap\\s/d' /etc/fstab`" + `, or set failSwapOn: false in kubelet's configuration`},
		{What: "off", Node: checkstest.Node(map[string]string{"/proc/swaps": header, kubeadmConfig: unset}, nil),
			Want: "pass\nwant: no swap\ngot: no swap"},
		{What: "tolerated, in JSON", Node: checkstest.Node(map[string]string{"/proc/swaps": header + "/dev/zram0 partition 1 0 100\n",
			eksConfig: `{"kind":"KubeletConfiguration","failSwapOn":false}`}, nil), Want: `pass
want: no swap, or failSwapOn false
got: swap, and failSwapOn false
evidence: /proc/swaps: /dev/zram0 partition 1 0 100
evidence: /etc/kubernetes/kubelet/config.json: failSwapOn: false`},
		{What: "tolerated, in YAML 1.1 booleans", Node: checkstest.Node(map[string]string{"/proc/swaps": header + "/dev/zram0 partition 1 0 100\n",
			kubeadmConfig: "failSwapOn: yes\nfailSwapOn: no\n"}, nil), Want: `pass
want: no swap, or failSwapOn false
got: swap, and failSwapOn false
evidence: /proc/swaps: /dev/zram0 partition 1 0 100
evidence: /var/lib/kubelet/config.yaml: failSwapOn: false`},
		{What: "tolerated by an argument, which overrides", Node: checkstest.Node(map[string]string{
			"/proc/swaps": header + "/dev/zram0 partition 1 0 100\n",
			"/etc/default/kubelet": "#KUBELET_EXTRA_ARGS=--fail-swap-on=true\nKUBELET_EXTRA_ARGS=\"--v=2 --config /etc/k.yaml " +
				"--fail-swap-on=false\"\n",
			"/etc/k.yaml": "failSwapOn: true\n",
		}, nil), Want: `pass
want: no swap, or failSwapOn false
got: swap, and failSwapOn false
evidence: /proc/swaps: /dev/zram0 partition 1 0 100
evidence: /etc/default/kubelet: --fail-swap-on=false`},
		{What: "tolerated by an argument in a multi-line quoted value", Node: withUnit("", map[string]string{
			"/proc/swaps":          header + "/dev/zram0 partition 1 0 100\n",
			unitFile:               "[Service]\nEnvironmentFile=/etc/default/kubelet\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n",
			"/etc/default/kubelet": "KUBELET_EXTRA_ARGS=\"\n  --v=2\n  --fail-swap-on=false\n\"\n",
		}), Want: `pass
want: no swap, or failSwapOn false
got: swap, and failSwapOn false
evidence: /proc/swaps: /dev/zram0 partition 1 0 100
evidence: /etc/default/kubelet: --fail-swap-on=false`},
		{What: "tolerated by the last file that a wildcard matches", Node: withUnit("", map[string]string{
			"/proc/swaps":               header + "/dev/zram0 partition 1 0 100\n",
			unitFile:                    "[Service]\nEnvironmentFile=-/etc/none/*\nEnvironmentFile=/etc/kubernetes/*.env\nExecStart=/usr/bin/kubelet $ARGS $MORE\n",
			"/etc/kubernetes/1.env":     "ARGS=--fail-swap-on=true\n",
			"/etc/kubernetes/2.env":     "ARGS=--fail-swap-on=false\n",
			"/etc/kubernetes/.3.env":    "MORE=--fail-swap-on=true\n",
			"/etc/kubernetes/4.env.old": "ARGS=\n",
		}), Want: `pass
want: no swap, or failSwapOn false
got: swap, and failSwapOn false
evidence: /proc/swaps: /dev/zram0 partition 1 0 100
evidence: /etc/kubernetes/2.env: --fail-swap-on=false`},
		{What: "tolerated by a drop-in of the configuration, and of the unit", Node: checkstest.Node(map[string]string{
			"/proc/swaps": header + "/dev/zram0 partition 1 0 100\n", kubeadmConfig: "failSwapOn: true\n",
			"/etc/systemd/system/kubelet.service.d/20-dir.conf": "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--config-dir=/etc/kubelet.d\"\n",
			"/etc/kubelet.d/10-swap.conf":                       "failSwapOn: true\n",
			"/etc/kubelet.d/20-more/10-swap.conf":               "failSwapOn: false\n",
		}, nil), Want: `pass
want: no swap, or failSwapOn false
got: swap, and failSwapOn false
evidence: /proc/swaps: /dev/zram0 partition 1 0 100
evidence: /etc/kubelet.d/20-more/10-swap.conf: failSwapOn: false`},
		{What: "no kubelet yet", Node: checkstest.Node(map[string]string{"/proc/swaps": on}, nil),
			Want: "skipped\nskipped: no kubelet configuration found"},
		{What: "zram of the distribution", Node: checkstest.Node(map[string]string{"/proc/swaps": header + "/dev/zram0 partition 1 0 100\n",
			kubeadmConfig: unset}, nil), Want: `fail
want: no swap, or failSwapOn false
got: swap on /dev/zram0
evidence: /proc/swaps: /dev/zram0 partition 1 0 100
remedy: run ` + "`swapoff /dev/zram0; : >/etc/systemd/zram-generator.conf; sed -i -E '/^\\s*[^#[:space:]]\\S*\\s+\\S+\\s+swap\\s/d' /etc/fstab`" + `, or set failSwapOn: false in kubelet's configuration`},
		{What: "k3s", Host: live, Node: checkstest.Node(map[string]string{"/proc/swaps": on,
			"/etc/systemd/system/k3s.service": "[Service]\nExecStart=/usr/local/bin/k3s server\n"}, nil), Policy: `gate { unit = "k3s.service" }`,
			Want: `
pass
want: no swap, or failSwapOn false
got: swap, and failSwapOn false
evidence: /proc/swaps: /dev/sda2 partition 2097148 0 -2
evidence: /proc/swaps: /swapfile file 1048572 0 -3
evidence: k3s.service: --fail-swap-on=false`},
		{What: "k3s under another name", Node: checkstest.Node(map[string]string{"/proc/swaps": on}, nil), Policy: `gate { unit = "k3s-x.service" }`,
			Want: `
skipped
skipped: k3s and RKE2 start kubelet with --fail-swap-on=false`},
		{What: "a kernel without CONFIG_SWAP", Node: checkstest.Node(map[string]string{kubeadmConfig: unset,
			"/proc/meminfo": "MemTotal:        4013324 kB\nSwapCached:            0 kB\nSwapTotal:             0 kB\n"}, nil), Want: `
pass
want: no swap
got: no swap
evidence: /proc/swaps: missing: this kernel cannot swap
evidence: /proc/meminfo: SwapTotal: 0 kB`},
		{What: "a /proc that lacks the file", Node: checkstest.Node(map[string]string{kubeadmConfig: unset,
			"/proc/meminfo": "SwapTotal:       2097148 kB\n"}, nil),
			Want: "unknown\nerror: reading the swap devices: open /proc/swaps: no such file or directory"},
		{What: "a /proc that has only processes", Node: checkstest.Node(map[string]string{kubeadmConfig: unset}, nil),
			Want: "unknown\nerror: /proc/swaps is missing, and it is unknown whether the kernel can swap: open /proc/meminfo: no such " +
				"file or directory"},
	})
}

// TestSwapNotRecorded: a recording without /proc/swaps does not mean that the kernel cannot swap.
func TestSwapNotRecorded(t *testing.T) {
	node := checkstest.Node(map[string]string{kubeadmConfig: "kind: KubeletConfiguration\n", "/proc/meminfo": "SwapTotal: 0 kB\n"}, nil)
	recording, snapshot := host.Record(node.Host())
	checkstest.On(t.Context(), t, recording, checks.Run, "swap", "")
	want := "pass\nwant: no swap\ngot: no swap\nevidence: /proc/swaps: missing: this kernel cannot swap\nevidence: /proc/meminfo: SwapTotal: 0 kB"
	checkstest.Equal(t, "recorded", want, checkstest.Text(checkstest.On(t.Context(), t, host.Replay(snapshot), checks.Run, "swap", "")))
	delete(snapshot.Answers["files"], "/proc/swaps")
	clear(snapshot.Answers["conclusions"])
	checkstest.Equal(t, "not recorded", "unknown\nerror: reading /var/lib/kubelet/config.yaml: a snapshot does not hold its text",
		checkstest.Text(checkstest.On(t.Context(), t, host.Replay(snapshot), checks.Run, "swap", "")))
}
