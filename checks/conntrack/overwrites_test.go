package conntrack_test

import (
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
)

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
	checkstest.Run(t, []checkstest.Case{
		{What: "lowered", Problem: name, Stage: checks.Run, Policy: asks, Node: node("0-3", "1.34.1", volume, conf+"null\n  min: null\n"), Want: `
warn
want: 262144
got: kube-proxy writes 131072
evidence: /var/lib/kubelet/pods/6b1a/volumes/kubernetes.io~configmap/kube-proxy/config.conf: max(131072, 32768 x 4 CPUs)
remedy: set conntrack.maxPerCore: 0 in kube-proxy's configuration (/var/lib/kubelet/pods/6b1a/volumes/kubernetes.io~configmap/kube-proxy/config.conf), or require 131072 in the policy`},
		{What: "raised, by flags", Problem: name, Policy: asks,
			Node: node("0-15", "1.34.1", manifest, "  - --conntrack-max-per-core=65536\n"), Want: `
warn
want: 262144
got: kube-proxy writes 1048576
evidence: /etc/kubernetes/manifests/kube-proxy.manifest: max(131072, 65536 x 16 CPUs)
remedy: set conntrack.maxPerCore: 0 in kube-proxy's configuration (/etc/kubernetes/manifests/kube-proxy.manifest), or require 1048576 in the policy`},
		{What: "only raised before 1.29", Problem: name, Policy: asks, Node: node("0-3", "1.28.9", volume, conf+"32768\n"), Want: `
pass
want: 262144
got: kube-proxy writes 262144
evidence: /var/lib/kubelet/pods/6b1a/volumes/kubernetes.io~configmap/kube-proxy/config.conf: max(131072, 32768 x 4 CPUs)`},
		{What: "only raised from 1.37", Problem: name, Policy: asks, Node: node("0-3", "1.37.2", volume, conf+"32768\n"), Want: `
pass
want: 262144
got: kube-proxy writes 262144
evidence: /var/lib/kubelet/pods/6b1a/volumes/kubernetes.io~configmap/kube-proxy/config.conf: max(131072, 32768 x 4 CPUs)`},
		{What: "raised by 1.37", Problem: name, Policy: asks, Node: node("0-15", "1.37.2", volume, conf+"32768\n"), Want: `
warn
want: 262144
got: kube-proxy writes 524288
evidence: /var/lib/kubelet/pods/6b1a/volumes/kubernetes.io~configmap/kube-proxy/config.conf: max(131072, 32768 x 16 CPUs)
remedy: set conntrack.maxPerCore: 0 in kube-proxy's configuration (/var/lib/kubelet/pods/6b1a/volumes/kubernetes.io~configmap/kube-proxy/config.conf), or require 524288 in the policy`},
		{What: "lowered or left, depending on the version", Problem: name, Policy: asks, Node: node("0-3", "", volume, conf+"32768\n"), Want: `
unknown
error: kube-proxy writes 131072 or 262144, depending on its version (1.36 has a cap, 1.37 only raises), which is unknown`},
		{What: "agrees", Problem: name, Policy: asks, Node: node("0-7", "", "", ""), Want: `
pass
want: 262144
got: kube-proxy writes 262144
evidence: kube-proxy's defaults: max(131072, 32768 x 8 CPUs)`},
		{What: "maxPerCore 0", Problem: name, Policy: asks, Node: node("0-3", "1.34.1", volume, conf+"0\n"), Want: `
pass
want: 262144
got: maxPerCore 0: kube-proxy writes nothing
evidence: /var/lib/kubelet/pods/6b1a/volumes/kubernetes.io~configmap/kube-proxy/config.conf: conntrack.maxPerCore 0`},
		{What: "k3s", Problem: name, Policy: asks + "\ngate { unit = \"k3s.service\" }\n", Node: node("0-3", "1.34.1", "", ""), Want: `
pass
want: 262144
got: maxPerCore 0: kube-proxy writes nothing
evidence: k3s's arguments for kube-proxy: conntrack.maxPerCore 0`},
		{What: "k3s, with another argument", Problem: name, Policy: asks + "\ngate { unit = \"k3s-agent.service\" }\n",
			Node: node("0-3", "1.34.1", "/etc/rancher/k3s/config.yaml", "kube-proxy-arg: [conntrack-max-per-core=1]\n"), Want: `
warn
want: 262144
got: kube-proxy writes 131072
evidence: k3s's arguments for kube-proxy: max(131072, 1 x 4 CPUs)
remedy: set conntrack.maxPerCore: 0 in kube-proxy's configuration (k3s's arguments for kube-proxy), or require 131072 in the policy`},
		{What: "RKE2", Problem: name, Policy: asks, Node: node("0-3", "1.34.1", "/var/lib/rancher/rke2/agent/pod-manifests/kube-proxy.yaml",
			"spec:\n  containers:\n  - args:\n    - --conntrack-max-per-core=0\n    - --proxy-mode=iptables\n"), Want: `
pass
want: 262144
got: maxPerCore 0: kube-proxy writes nothing
evidence: /var/lib/rancher/rke2/agent/pod-manifests/kube-proxy.yaml: conntrack.maxPerCore 0`},
		{What: "no configuration", Problem: name, Policy: asks, Node: node("0-3", "1.34.1", "", ""), Want: `
unknown
error: by default kube-proxy writes 131072 instead of the policy's 262144, but kube-proxy's configuration is not on this node and may set conntrack.maxPerCore to 0`},
		{What: "capped or not, depending on the version", Problem: name, Policy: `sysctl "net.netfilter.nf_conntrack_max" { value = 1048576 }`,
			Node: node("0-63", "", volume, conf+"32768\n"), Want: `
unknown
error: kube-proxy writes 2097152 or 1048576, depending on its version (1.36 has a cap, 1.37 only raises), which is unknown`},
		{What: "the cap of 1.36", Problem: name, Policy: `sysctl "net.netfilter.nf_conntrack_max" { value = 1048576 }`,
			Node: node("0-63", "1.36.0", volume, conf+"32768\n"), Want: `
pass
want: 1048576
got: kube-proxy writes 1048576
evidence: /var/lib/kubelet/pods/6b1a/volumes/kubernetes.io~configmap/kube-proxy/config.conf: max(131072, 32768 x 64 CPUs)`},
		{What: "CPUs unknown", Problem: name, Policy: asks, Node: noCPUs, Want: `
unknown
error: cannot determine the number of CPUs, which kube-proxy multiplies by 32768`},
		{What: "another parameter in the policy", Problem: name, Policy: `sysctl "kernel.panic" { value = 10 }`,
			Node: node("0-3", "", "", ""), Want: `
skipped
skipped: the policy leaves nf_conntrack_max to kube-proxy`},
		{What: "in the policy, for other nodes", Problem: name, Policy: `sysctl "net.netfilter.nf_conntrack_max" {
			when  = os.id == "other"
			value = 262144
		}`, Node: node("0-3", "", "", ""), Want: `
skipped
skipped: the policy leaves nf_conntrack_max to kube-proxy`},
		{What: "not in the policy", Problem: name, Node: node("0-3", "", "", ""), Want: `
skipped
skipped: the policy leaves nf_conntrack_max to kube-proxy`},
	})
	broken := node("0-3", "", "/var/lib/kube-proxy/config.conf", "kind: KubeProxyConfiguration\nconntrack:\n  maxPerCore: many\n")
	r := checkstest.On(t.Context(), t, broken.Host(), checks.Run, name, asks)
	if r.Verdict != verdict.Unknown || !strings.HasPrefix(r.Err.Error(), "reading /var/lib/kube-proxy/config.conf: ") {
		t.Errorf("a configuration that cannot be read: %v, %v", r.Verdict, r.Err)
	}
}
