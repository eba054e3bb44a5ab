//go:build cluster

package cluster

import (
	"os"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// cause is a way to break a node so that a real kubelet exits at its start. Shell scripts break and mend it. kubelet's files are rewritten
// before each start.
type cause struct {
	what   string
	flags  string // additional flags of kubelet
	breaks string
	mends  string
	check  string // check that must report the cause; "" if nodegate must not hold kubelet
	says   string // part of kubelet's log; "" if kubelet starts
	limps  bool   // kubelet starts all the same: nodegate must warn, and not hold it
	older  *outcome
}

// outcome is the check and the text for kubelet Older, where they differ.
type outcome struct{ check, says string }

func causes() []cause {
	const c = "/var/lib/kubelet/config.yaml"
	const rotates = "--rotate-certificates --cert-dir=/var/lib/kubelet/pki"
	const certificates = "--kubeconfig=/etc/kubernetes/kubelet.conf --bootstrap-kubeconfig=/etc/kubernetes/bootstrap.conf"
	const joined = "--kubeconfig=/etc/kubernetes/kubelet.conf"
	return []cause{
		{what: "nothing"},
		{what: "no configuration file", breaks: "rm " + c, check: "kubelet.config", says: "failed to read kubelet config file"},
		{what: "an empty configuration file", breaks: ": >" + c, check: "kubelet.config", says: "was empty"},
		{what: "not YAML", breaks: "echo 'a: [' >" + c, check: "kubelet.config", says: "failed to decode"},
		{what: "another apiVersion", breaks: "sed -i s/v1beta1/v1/ " + c, check: "kubelet.config", says: "no kind"},
		{what: "another kind", breaks: "sed -i s/KubeletConfiguration/Kubelet/ " + c, check: "kubelet.config", says: "no kind"},
		{what: "no kind", breaks: "sed -i /^kind/d " + c, check: "kubelet.config", says: "Object 'Kind' is missing"},
		{what: "no drop-in directory", flags: "--config-dir=/etc/none", check: "kubelet.config", says: "lstat /etc/none"},
		{what: "a drop-in without a kind", flags: "--config-dir=/etc/dropins",
			breaks: "mkdir /etc/dropins; echo 'maxPods: 9' >/etc/dropins/1.conf",
			mends:  "rm -r /etc/dropins", check: "kubelet.config", says: "Object 'Kind' is missing"},
		{what: "a field that kubelet does not know", breaks: "echo 'fooBar: 1' >>" + c},

		{what: "--pod-infra-container-image", flags: "--pod-infra-container-image=pause", check: "kubelet.values",
			says: "unknown flag", older: &outcome{}},
		{what: "--container-runtime", flags: "--container-runtime=remote", check: "kubelet.values", says: "unknown flag"},
		{what: "a role as a label", flags: "--node-labels=node-role.kubernetes.io/worker=", check: "kubelet.values",
			says: "node-role.kubernetes.io"},
		{what: "an in-tree cloud provider", flags: "--cloud-provider=aws", says: "built-in cloud providers are disabled",
			older: &outcome{"", "unknown cloud provider"}},

		{what: "a removed feature gate", breaks: "echo 'featureGates: {DynamicKubeletConfig: true}' >>" + c, check: "kubelet.values",
			says: "unrecognized feature gate"},
		{what: "a removed feature gate, as a flag", flags: "--feature-gates=FooBar=true", check: "kubelet.values",
			says: "unrecognized feature gate"},
		{what: "a removed feature gate, in a drop-in", flags: "--config-dir=/etc/dropins", breaks: "mkdir /etc/dropins; " +
			"printf 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfeatureGates: {FooBar: true}\n' >/etc/dropins/1.conf",
			mends: "rm -r /etc/dropins", check: "kubelet.values", says: "unrecognized feature gate"},
		{what: "a value of the wrong type", breaks: "echo 'maxPods: \"110\"' >>" + c, check: "kubelet.values", says: "cannot unmarshal string"},
		{what: "a value out of bounds, with a JSON log", breaks: "printf 'imageGCLowThresholdPercent: 90\nlogging: {format: json}\n' >>" + c,
			check: "kubelet.values", says: "must be less than imageGCHighThresholdPercent"},
		{what: "an unknown cipher", breaks: "echo 'tlsCipherSuites: [TLS_NONE]' >>" + c, check: "kubelet.values", says: "Cipher suite TLS_NONE"},
		{what: "a flag with a value of the wrong type", flags: "--max-pods=many", check: "kubelet.values", says: "invalid argument"},
		{what: "an invalid label value", flags: "--node-labels=a=b@c", check: "kubelet.values", says: "invalid node labels"},
		{what: "a feature gate that kubelet has", breaks: "echo 'featureGates: {KubeletTracing: true}' >>" + c},

		{what: "cgroup v1", breaks: "mount -t tmpfs tmpfs /sys/fs/cgroup", mends: "umount /sys/fs/cgroup", check: "kubelet.cgroup-v1",
			says: "configured to not run on a host using cgroup v1", older: &outcome{"", "failed to find cgroup mounts"}},
		{what: "LimitedSwap on cgroup v1", breaks: "mount -t tmpfs tmpfs /sys/fs/cgroup; printf 'failCgroupV1: false\\nfailSwapOn: false\\n" +
			"memorySwap: {swapBehavior: LimitedSwap}\\n' >>" + c, mends: "umount /sys/fs/cgroup", check: "kubelet.cgroup-v1",
			says: "only supported with cgroupv2"},
		{what: "zram",
			breaks: "printf 'Filename Type Size Used Priority\\n/dev/zram0 partition 9 0 100\\n' >/etc/swaps; mount --bind /etc/swaps /proc/swaps",
			mends:  "umount /proc/swaps", check: "swap", says: "running with swap on is not supported"},
		{what: "kernel.panic",
			breaks: "echo 0 >/etc/panic; mount --bind /etc/panic /proc/sys/kernel/panic; echo 'protectKernelDefaults: true' >>" + c,
			mends:  "umount /proc/sys/kernel/panic", check: "kubelet.protect-kernel-defaults", says: "invalid kernel flag: kernel/panic"},
		{what: "no /dev/kmsg", breaks: "mount -t tmpfs tmpfs /dev; mknod -m 666 /dev/null c 1 3", mends: "umount -l /dev",
			says: "open /dev/kmsg"},

		{what: "a read-only directory", breaks: "cp " + c +
			" /etc/; mount -t tmpfs -o ro tmpfs /var/lib/kubelet; mount --bind /etc/config.yaml /etc/config.yaml",
			flags: "--config=/etc/config.yaml", mends: "umount /etc/config.yaml /var/lib/kubelet", check: "kubelet.root-dir",
			says: "read-only file system"},
		{what: "a full directory", flags: "--config=/etc/config.yaml", breaks: "cp " + c +
			" /etc/; mount -t tmpfs -o size=8k tmpfs /var/lib/kubelet; " +
			"dd if=/dev/zero of=/var/lib/kubelet/filler || true", mends: "umount /var/lib/kubelet", check: "kubelet.root-dir",
			says: "no space left on device"},
		{what: "a directory without inodes", flags: "--config=/etc/config.yaml", breaks: "cp " + c + " /etc/; mount -t tmpfs -o nr_inodes=2 tmpfs " +
			"/var/lib/kubelet; touch /var/lib/kubelet/filler", mends: "umount /var/lib/kubelet", check: "kubelet.root-dir",
			says: "no space left on device"},

		{what: "no runtime", flags: "--container-runtime-endpoint=unix:///run/none.sock", check: "kubelet.runtime",
			says: "validate CRI v1 runtime API"},
		{what: "no runtime, and none named", breaks: "mv /run/containerd/containerd.sock /run/away.sock",
			mends: "mv /run/away.sock /run/containerd/containerd.sock", check: "kubelet.runtime", says: "validate CRI v1 runtime API"},
		{what: "a runtime without CRI", flags: "--container-runtime-endpoint=unix:///run/bare.sock", check: "kubelet.runtime",
			says: "validate CRI v1 runtime API"},

		{what: "no kubeconfig", flags: certificates, breaks: "rm /etc/kubernetes/kubelet.conf", // kubelet.exit prints kubelet's words
			says: "unable to load bootstrap kubeconfig"},
		{what: "an expired certificate", flags: certificates, breaks: "cp /etc/kubernetes/expired.conf /etc/kubernetes/kubelet.conf",
			says: "unable to load bootstrap kubeconfig"},
		{what: "an emptied kubeconfig", flags: certificates, breaks: ": >/etc/kubernetes/kubelet.conf",
			says: "unable to load bootstrap kubeconfig"},
		{what: "a kubeconfig without a certificate", flags: certificates, breaks: "sed -i /client-/d /etc/kubernetes/kubelet.conf",
			says: "unable to load bootstrap kubeconfig"},
		{what: "an emptied certificate that was rotated", flags: "--kubeconfig=/etc/kubernetes/kubelet.conf " + rotates,
			breaks: "mkdir /var/lib/kubelet/pki; : >/var/lib/kubelet/pki/kubelet-client-current.pem",
			says:   "could not convert data"},
		{what: "the same, with a bootstrap kubeconfig", flags: "--kubeconfig=/etc/kubernetes/kubelet.conf " + rotates +
			" --bootstrap-kubeconfig=/etc/kubernetes/valid.conf", says: "could not convert data",
			breaks: "mkdir /var/lib/kubelet/pki; : >/var/lib/kubelet/pki/kubelet-client-current.pem"},
		{what: "a certificate to rotate", flags: certificates + " " + rotates},
		{what: "an expired certificate, and no bootstrap", flags: "--kubeconfig=/etc/kubernetes/expired.conf"},
		{what: "a valid certificate", flags: certificates},

		{what: "no kubeconfig, without a bootstrap", flags: joined, breaks: "rm /etc/kubernetes/kubelet.conf",
			says: "no such file"},

		{what: "no image service", breaks: "echo 'imageServiceEndpoint: unix:///run/none.sock' >>" + c, check: "kubelet.runtime",
			says: "validate CRI v1 image API"},
		{what: "an image service without CRI", breaks: "echo 'imageServiceEndpoint: unix:///run/bare.sock' >>" + c, check: "kubelet.runtime",
			says: "validate CRI v1 image API"},
		{what: "an image service", breaks: "ln -s /run/containerd/containerd.sock /run/images.sock; echo 'imageServiceEndpoint: " +
			"unix:///run/images.sock' >>" + c, mends: "rm /run/images.sock"},
		{what: "a runtime over TCP", breaks: "echo 'containerRuntimeEndpoint: tcp://127.0.0.1:1' >>" + c, check: "kubelet.runtime",
			says: "only support unix socket endpoint"},

		{what: "an address that no link has", flags: joined + " --node-ip=203.0.113.9", check: "kubelet.node-ip", limps: true},
		{what: "the unspecified address", flags: "--node-ip=0.0.0.0"},
		{what: "a host name in capitals", flags: joined + " --hostname-override=Node1"},
		{what: "the name localhost", flags: joined + " --hostname-override=localhost", check: "kubelet.node-name", limps: true},
		{what: "an invalid name", flags: joined + " --hostname-override=my_node", check: "kubelet.node-name", limps: true},

		{what: "port 10250 is taken", breaks: "LISTEN 127.0.0.1:10250", check: "kubelet.ports", says: "address already in use"},
		{what: "port 10248 is taken", breaks: "LISTEN 127.0.0.1:10248"},
		{what: "no resolv.conf", breaks: "echo 'resolvConf: /etc/none' >>" + c},
	}
}

// TestKubeletCauses breaks a node in every way of the table; without LONG in a quarter of them, another one each day. nodegate must report
// the cause, and then a real kubelet must exit because of it. With the cause removed, both must succeed. If a real kubelet starts,
// nodegate must not hold it. KUBERNETES=1.31.4 tests kubelet Older.
func TestKubeletCauses(t *testing.T) {
	hosttest.NeedRoot(t)
	s, err := NewSpace()
	require.NoError(t, err)
	t.Cleanup(s.Close)
	n := newKubeletNode(t, s)
	for i, c := range causes() {
		if os.Getenv("LONG") != "" || (i+time.Now().YearDay())%4 == 0 {
			t.Run(c.what, func(t *testing.T) { n.try(t, c) })
		}
	}
}

// try breaks the node, and mends it.
func (n *kubeletNode) try(t *testing.T, c cause) {
	t.Helper()
	if c.older != nil && os.Getenv("KUBERNETES") == Older {
		c.check, c.says = c.older.check, c.older.says
	}
	n.writeConfig(t, c.flags)
	stop := n.runScript(t, c.breaks)
	named := n.findHoldingCheck(t)
	warned := ""
	if c.limps {
		warned = n.findChecks(t, "run", "warn")
	}
	ran, said := n.startKubelet(t)
	stop()
	switch {
	case c.limps:
		if named != "" || warned != c.check || !ran || !strings.Contains(said, c.says) {
			t.Errorf("nodegate holds because of %q and warns %q, want only a warning of %s; kubelet runs: %v; its log:\n%s\nwant %q",
				named, warned, c.check, ran, said, c.says)
		}
	case c.check == "" && (named != "" || ran != (c.says == "") || !strings.Contains(said, c.says)):
		t.Errorf("nodegate holds kubelet because of %q; kubelet runs: %v; its log:\n%s\nwant %q", named, ran, said, c.says)
	case c.check != "" && (named != c.check || ran || !strings.Contains(said, c.says)):
		t.Errorf("nodegate reports %q, want %s; kubelet runs: %v; its log:\n%s\nwant %q", named, c.check, ran, said, c.says)
	}
	n.runScript(t, c.mends)()
	if c.check == "" && c.says == "" {
		return
	}
	n.writeConfig(t, "")
	assert.Equal(t, n.findHoldingCheck(t), "", "after mending, nodegate reports")
	if ran, said := n.startKubelet(t); !ran {
		t.Errorf("after mending, kubelet exits:\n%s", said)
	}
}
