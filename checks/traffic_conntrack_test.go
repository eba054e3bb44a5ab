package checks_test

import (
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// conntrackNode has nf_conntrack's numbers; an empty one is absent.
func conntrackNode(count, most, buckets string) *hosttest.Machine {
	m := &hosttest.Machine{Files: map[string]string{}}
	for name, value := range map[string]string{"count": count, "max": most, "buckets": buckets} {
		if value != "" {
			m.Sysctl("net/netfilter/nf_conntrack_"+name, value)
		}
	}
	return m
}

func TestConntrackTable(t *testing.T) {
	runJudged(t, []judgedCase{
		{what: "81 %", name: "conntrack.headroom", node: conntrackNode("81000", "100000", ""), want: `
warn
want: at most 80 % of the table
got: 81 % of the table
evidence: /proc/sys/net/netfilter/nf_conntrack_count: 81000 of 100000
remedy: run: sysctl -w net.netfilter.nf_conntrack_max=200000; and see what fills the table: conntrack -L`},
		{what: "80 %", name: "conntrack.headroom", node: conntrackNode("80000", "100000", ""), want: `
pass
want: at most 80 % of the table
got: 80 % of the table
evidence: /proc/sys/net/netfilter/nf_conntrack_count: 80000 of 100000`},
		{what: "96 %", name: "conntrack.headroom", node: conntrackNode("96000", "100000", ""), policy: `check "conntrack.full" {}`, want: `
warn
want: at most 80 % of the table
got: 96 % of the table
evidence: /proc/sys/net/netfilter/nf_conntrack_count: 96000 of 100000
because: conntrack.full
remedy: run: sysctl -w net.netfilter.nf_conntrack_max=200000; and see what fills the table: conntrack -L`},
		{what: "not loaded", name: "conntrack.headroom", node: conntrackNode("", "", ""), want: `
skip
skip: nf_conntrack is not loaded: nothing is tracked`},
		{what: "96 %", name: "conntrack.full", node: conntrackNode("96000", "100000", ""), want: `
fail
want: at most 95 % of the table
got: 96 % of the table
evidence: /proc/sys/net/netfilter/nf_conntrack_count: 96000 of 100000
remedy: run: sysctl -w net.netfilter.nf_conntrack_max=200000; and see what fills the table: conntrack -L`},
		{what: "95 %", name: "conntrack.full", node: conntrackNode("95000", "100000", ""), want: `
pass
want: at most 95 % of the table
got: 95 % of the table
evidence: /proc/sys/net/netfilter/nf_conntrack_count: 95000 of 100000`},
		{what: "no limit", name: "conntrack.full", node: conntrackNode("95000", "0", ""), want: `
pass
want: at most 95 % of the table
got: no limit
evidence: /proc/sys/net/netfilter/nf_conntrack_count: 95000 of 0`},
		{what: "not loaded", name: "conntrack.full", node: conntrackNode("", "", ""), want: `
skip
skip: nf_conntrack is not loaded: nothing is tracked`},
		{what: "small", name: "conntrack.hashsize", stage: checks.Run, node: conntrackNode("1", "1048576", "65536"), want: "\n" + "warn\nwant: at least a quarter of nf_conntrack_max\ngot: 65536 buckets for 1048576 entries\nevidence: /proc/sys/net/netfilter/nf_conntrack_buckets: 65536\nremedy: run: echo 262144 > /sys/module/nf_conntrack/parameters/hashsize; and write `options nf_conntrack hashsize=262144` to /etc/modprobe.d/nf_conntrack.conf"},
		{what: "right", name: "conntrack.hashsize", node: conntrackNode("1", "262144", "65536"), want: `
pass
want: at least a quarter of nf_conntrack_max
got: 65536 buckets for 262144 entries
evidence: /proc/sys/net/netfilter/nf_conntrack_buckets: 65536`},
		{what: "not loaded", name: "conntrack.hashsize", stage: checks.Run, node: conntrackNode("", "", ""), want: `
skip
skip: nf_conntrack is not loaded: nothing is tracked`},
		{what: "not a number", name: "conntrack.hashsize", node: conntrackNode("1", "many", "65536"), want: `
unknown
error: reading net.netfilter.nf_conntrack_max: strconv.ParseUint: parsing "many": invalid syntax`},
	})
}

func TestLosses(t *testing.T) {
	const (
		header = "entries  found invalid insert insert_failed drop early_drop\n"
		quiet  = header + "00000010  00000000 00000000 00000000 00000000 00000000 00000000\n"
		past   = header + "00000010  00000000 00000000 00000000 0000000a 00000000 00000001\n00000010  00000000 00000000 00000000 00000010 00000000 00000000\n"
		more   = header + "00000010  00000000 00000000 00000000 0000000a 00000000 00000002\n00000010  00000000 00000000 00000000 00000014 00000000 00000000\n"
		full   = header + "00000010  00000000 00000000 00000000 0000000a 00000005 00000001\n00000010  00000000 00000000 00000000 00000010 00000000 00000000\n"
		stat   = "/proc/net/stat/nf_conntrack"

		snmp      = "/proc/net/snmp"
		udpHeader = "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors\n"
	)
	node := func(name, text string) *hosttest.Machine {
		return &hosttest.Machine{Files: map[string]string{name: text}}
	}
	then := func(name, text string) func(*host.Host) {
		return func(h *host.Host) { h.Files = &secondRead{Files: h.Files, name: name, then: text} }
	}
	runJudged(t, []judgedCase{
		{what: "races and a full table", name: "conntrack.losses", node: node(stat, past), host: then(stat, more), want: `
warn
want: no loss now
got: rising: insert_failed, early_drop
evidence: /proc/net/stat/nf_conntrack: insert_failed 30, 4 more in 100 ms
remedy: run NodeLocal DNSCache, or put single-request-reopen or use-vc into resolv.conf's options; raise net.netfilter.nf_conntrack_max, and see what fills the table: conntrack -L`},
		{what: "a full table", name: "conntrack.losses", node: node(stat, past), host: then(stat, full), want: `
warn
want: no loss now
got: rising: drop
evidence: /proc/net/stat/nf_conntrack: insert_failed 26
remedy: raise net.netfilter.nf_conntrack_max, and see what fills the table: conntrack -L`},
		{what: "in the past", name: "conntrack.losses", node: node(stat, past), want: `
pass
want: no loss now
got: no loss now
evidence: /proc/net/stat/nf_conntrack: insert_failed 26`},
		{what: "never, without a second read", name: "conntrack.losses", node: node(stat, quiet), host: then(stat, more), want: `
pass
want: no loss now
got: no loss now
evidence: /proc/net/stat/nf_conntrack: insert_failed 0`},
		{what: "not loaded", name: "conntrack.losses", node: node("/x", ""), want: `
skip
skip: nf_conntrack is not loaded: nothing is tracked`},
		{what: "another form", name: "conntrack.losses", node: node(stat, "entries\n00000001\n"), want: `
unknown
error: /proc/net/stat/nf_conntrack has no column insert_failed`},
		{what: "rising", name: "udp.checksum-errors", node: node(snmp, udpHeader+"Udp: 282 0 3 283 0 0 3\n"), host: then(snmp, udpHeader+"Udp: 282 0 9 283 0 0 9\n"), want: `
warn
want: no wrong checksum now
got: InCsumErrors rising
evidence: /proc/net/snmp: Udp InCsumErrors 9, 6 more in 100 ms
remedy: run: dmesg | grep 'UDP: bad checksum', which names the sender; then nodegate check --stage run there (vxlan.checksum)`},
		{what: "in the past", name: "udp.checksum-errors", node: node(snmp, udpHeader+"Udp: 282 0 3 283 0 0 3\n"), want: `
pass
want: no wrong checksum now
got: no wrong checksum now
evidence: /proc/net/snmp: Udp InCsumErrors 3`},
		{what: "never", name: "udp.checksum-errors", node: node(snmp, udpHeader+"Udp: 282 0 3 283 0 0 0\n"), want: `
pass
want: no wrong checksum now
got: no wrong checksum now
evidence: /proc/net/snmp: Udp InCsumErrors 0`},
		{what: "old kernel", name: "udp.checksum-errors", node: node(snmp, "Udp: InDatagrams\nUdp: 3\n"), want: `
unknown
error: /proc/net/snmp: this kernel has no InCsumErrors`},
	})
}

func TestConntrackOverwritten(t *testing.T) {
	const (
		manifest = "/etc/kubernetes/manifests/kube-proxy.manifest"
		volume   = "/var/lib/kubelet/pods/6b1a/volumes/kubernetes.io~configmap/kube-proxy/config.conf"
		conf     = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nconntrack:\n  maxPerCore: "
		asks     = `sysctl "net.netfilter.nf_conntrack_max" { value = 262144 }`
	)
	node := func(cpus, kubelet, config, text string) *hosttest.Machine {
		m := conntrackNode("1", "262144", "65536")
		m.Files["/sys/devices/system/cpu/online"] = cpus + "\n"
		if kubelet != "" {
			m.Version = map[string]string{"kubelet": "Kubernetes v" + kubelet}
		}
		if config != "" {
			m.Files[config] = text
		}
		return m
	}
	noCPUs := node("0-3", "", "", "")
	delete(noCPUs.Files, "/sys/devices/system/cpu/online")
	const name = "conntrack.kube-proxy-overwrites"
	runJudged(t, []judgedCase{
		{what: "lowered", name: name, stage: checks.Run, policy: asks, node: node("0-3", "1.34.1", volume, conf+"null\n  min: null\n"), want: `
warn
want: 262144
got: kube-proxy writes 131072
evidence: /var/lib/kubelet/pods/6b1a/volumes/kubernetes.io~configmap/kube-proxy/config.conf: max(131072, 32768 x 4 CPUs)
remedy: set conntrack.maxPerCore: 0 in kube-proxy's configuration (/var/lib/kubelet/pods/6b1a/volumes/kubernetes.io~configmap/kube-proxy/config.conf), or let the policy ask for 131072`},
		{what: "raised, by flags", name: name, policy: asks, node: node("0-15", "1.34.1", manifest, "  - --conntrack-max-per-core=65536\n"), want: `
warn
want: 262144
got: kube-proxy writes 1048576
evidence: /etc/kubernetes/manifests/kube-proxy.manifest: max(131072, 65536 x 16 CPUs)
remedy: set conntrack.maxPerCore: 0 in kube-proxy's configuration (/etc/kubernetes/manifests/kube-proxy.manifest), or let the policy ask for 1048576`},
		{what: "only raised before 1.29", name: name, policy: asks, node: node("0-3", "1.28.9", volume, conf+"32768\n"), want: `
pass
want: 262144
got: kube-proxy writes 262144
evidence: /var/lib/kubelet/pods/6b1a/volumes/kubernetes.io~configmap/kube-proxy/config.conf: max(131072, 32768 x 4 CPUs)`},
		{what: "agrees", name: name, policy: asks, node: node("0-7", "", "", ""), want: `
pass
want: 262144
got: kube-proxy writes 262144
evidence: kube-proxy's defaults: max(131072, 32768 x 8 CPUs)`},
		{what: "left alone", name: name, policy: asks, node: node("0-3", "1.34.1", volume, conf+"0\n"), want: `
pass
want: 262144
got: maxPerCore 0: kube-proxy writes nothing
evidence: /var/lib/kubelet/pods/6b1a/volumes/kubernetes.io~configmap/kube-proxy/config.conf: conntrack.maxPerCore 0`},
		{what: "no configuration", name: name, policy: asks, node: node("0-3", "1.34.1", "", ""), want: `
unknown
error: by default kube-proxy writes 131072 over the policy's 262144, and no configuration on this node tells whether conntrack.maxPerCore is 0`},
		{what: "a cap or not", name: name, policy: `sysctl "net.netfilter.nf_conntrack_max" { value = 1048576 }`, node: node("0-63", "", volume, conf+"32768\n"), want: `
unknown
error: kube-proxy writes 2097152 or 1048576, depending on its version (1.36 has a cap), which cannot be told here`},
		{what: "the cap of 1.36", name: name, policy: `sysctl "net.netfilter.nf_conntrack_max" { value = 1048576 }`, node: node("0-63", "1.36.0", volume, conf+"32768\n"), want: `
pass
want: 1048576
got: kube-proxy writes 1048576
evidence: /var/lib/kubelet/pods/6b1a/volumes/kubernetes.io~configmap/kube-proxy/config.conf: max(131072, 32768 x 64 CPUs)`},
		{what: "CPUs not known", name: name, policy: asks, node: noCPUs, want: `
unknown
error: cannot tell how many CPUs there are, which kube-proxy multiplies by 32768`},
		{what: "not asked for", name: name, node: node("0-3", "", "", ""), want: `
skip
skip: the policy leaves nf_conntrack_max to kube-proxy`},
	})
	broken := node("0-3", "", "/var/lib/kube-proxy/config.conf", "kind: KubeProxyConfiguration\nconntrack:\n  maxPerCore: many\n")
	r := judgeOn(t.Context(), t, broken.Host(), checks.Run, name, asks)
	if r.Verdict != checks.Unknown || !strings.HasPrefix(r.Err.Error(), "reading /var/lib/kube-proxy/config.conf: ") {
		t.Errorf("a configuration that cannot be read: %v, %v", r.Verdict, r.Err)
	}
}
