//go:build cluster

package cluster

import (
	"strings"
	"testing"

	"nodegate/internal/host/hosttest"
)

// cause is a way to break a node so that a real kubelet exits at its start. Shell scripts break and mend it. kubelet's files are rewritten
// before each start.
type cause struct {
	what   string
	flags  string // additional flags of kubelet
	breaks string
	mends  string
	check  string // check that must report the cause; "" if kubelet starts and nodegate must not hold it
	says   string // text in kubelet's log
	limps  bool   // kubelet starts all the same: nodegate must warn, and not hold it
}

// earlyCauses make kubelet exit before its lock file.
func earlyCauses() []cause {
	const c = "/var/lib/kubelet/config.yaml"
	const rotates = "--rotate-certificates --cert-dir=/var/lib/kubelet/pki"
	const certificates = "--kubeconfig=/etc/kubernetes/kubelet.conf --bootstrap-kubeconfig=/etc/kubernetes/bootstrap.conf"
	const provides = "--image-credential-provider-config=/etc/providers.yaml --image-credential-provider-bin-dir=/etc/bin"
	const provider = `printf 'apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- {name: ecr, ` +
		`matchImages: ["*.example.com"], defaultCacheDuration: 12h, apiVersion: credentialprovider.kubelet.k8s.io/v1}\n' >/etc/providers.yaml`
	return []cause{
		{what: "nothing"},
		{what: "no configuration file", breaks: "rm " + c, check: "kubelet.config", says: "failed to read kubelet config file"},
		{what: "an empty configuration file", breaks: ": >" + c, check: "kubelet.config", says: "was empty"},
		{what: "not YAML", breaks: "echo 'a: [' >" + c, check: "kubelet.config", says: "failed to decode"},
		{what: "another apiVersion", breaks: "sed -i s/v1beta1/v1/ " + c, check: "kubelet.config", says: "no kind"},
		{what: "another kind", breaks: "sed -i s/KubeletConfiguration/Kubelet/ " + c, check: "kubelet.config", says: "no kind"},
		{what: "no kind", breaks: "sed -i /^kind/d " + c, check: "kubelet.config", says: "Object 'Kind' is missing"},
		{what: "no certificate authority", breaks: "echo 'tlsCertFile: /etc/no.crt\ntlsPrivateKeyFile: /etc/no.key' >>" + c,
			check: "kubelet.config", says: "open /etc/no.crt"},
		{what: "no drop-in directory", flags: "--config-dir=/etc/none", check: "kubelet.config", says: "lstat /etc/none"},
		{what: "a drop-in without a kind", flags: "--config-dir=/etc/dropins",
			breaks: "mkdir /etc/dropins; echo 'maxPods: 9' >/etc/dropins/1.conf",
			mends:  "rm -r /etc/dropins", check: "kubelet.config", says: "Object 'Kind' is missing"},
		{what: "a field that kubelet does not know", breaks: "echo 'fooBar: 1' >>" + c},

		{what: "--pod-infra-container-image", flags: "--pod-infra-container-image=pause", check: "kubelet.flags", says: "unknown flag"},
		{what: "--container-runtime", flags: "--container-runtime=remote", check: "kubelet.flags", says: "unknown flag"},
		{what: "a role as a label", flags: "--node-labels=node-role.kubernetes.io/worker=", check: "kubelet.flags",
			says: "node-role.kubernetes.io"},
		{what: "an in-tree cloud provider", flags: "--cloud-provider=aws", check: "kubelet.flags", says: "built-in cloud providers are disabled"},

		{what: "an empty certificate authority file", breaks: ": >/etc/ca.crt; " +
			"echo 'authentication: {x509: {clientCAFile: /etc/ca.crt}, webhook: {enabled: false}}' >>" + c,
			check: "kubelet.config", says: "missing content for CA bundle"},
		{what: "an invalid certificate authority", breaks: "echo x >/etc/ca.crt; " +
			"echo 'authentication: {x509: {clientCAFile: /etc/ca.crt}, webhook: {enabled: false}}' >>" + c,
			check: "kubelet.config", says: "ca.crt"},
		{what: "an empty certificate of kubelet", breaks: "mkdir /var/lib/kubelet/pki; : >/var/lib/kubelet/pki/kubelet.crt; " +
			": >/var/lib/kubelet/pki/kubelet.key", check: "kubelet.config", says: "missing content for serving cert"},
		{what: "a certificate of kubelet without a key", breaks: "mkdir /var/lib/kubelet/pki; : >/var/lib/kubelet/pki/kubelet.crt",
			check: "kubelet.config", says: "must be supplied as a pair"},
		{what: "an empty rotated serving certificate", flags: "--kubeconfig=/etc/kubernetes/kubelet.conf --rotate-server-certificates",
			breaks: "mkdir /var/lib/kubelet/pki; : >/var/lib/kubelet/pki/kubelet-server-current.pem", check: "kubelet.config",
			says: "failed to initialize server certificate manager"},

		{what: "no provider directory", flags: provides, breaks: provider, check: "kubelet.config", says: "plugin binary directory /etc/bin did not exist"},
		{what: "no provider", flags: provides, breaks: "mkdir /etc/bin; " + provider, mends: "rm -r /etc/bin", check: "kubelet.config",
			says: "plugin binary executable"},
		{what: "no provider configuration", flags: provides, breaks: "mkdir /etc/bin; rm -f /etc/providers.yaml", mends: "rm -r /etc/bin",
			check: "kubelet.config", says: "/etc/providers.yaml"},
		{what: "an empty provider configuration", flags: provides, breaks: "mkdir /etc/bin; : >/etc/providers.yaml",
			mends: "rm -r /etc/bin", check: "kubelet.config", says: "Failed to register CRI auth plugins"},
		{what: "only a provider directory", flags: "--image-credential-provider-bin-dir=/etc", check: "kubelet.config",
			says: "Failed to register CRI auth plugins"},
		{what: "a provider", flags: provides, breaks: "mkdir -p /etc/bin; ln -s /bin/true /etc/bin/ecr; " + provider},

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
		{what: "a log size that is not a quantity", breaks: "echo 'containerLogMaxSize: 10X' >>" + c, check: "kubelet.values", says: "quantities must match"},
		{what: "a fractional log size", breaks: "echo 'containerLogMaxSize: 1.5Mi' >>" + c, check: "kubelet.values", says: "invalid max log size"},
		{what: "a machine-wide sysctl for Pods", breaks: "echo 'allowedUnsafeSysctls: [\"net.core.*\", vm.max_map_count]' >>" + c,
			check: "kubelet.values", says: "not known to be namespaced"},
		{what: "two addresses of one family", flags: "--node-ip=10.0.0.1,10.0.0.2", check: "kubelet.values", says: "dual-stack pair of IPs"},
		{what: "one invalid address of two", flags: "--node-ip=::,10.0.0.1", check: "kubelet.values", says: "cannot include"},
		{what: "valid sysctls, sizes and addresses", flags: "--node-ip=127.0.0.1,x", breaks: "printf 'containerLogMaxSize: 1.5M\\n" +
			"allowedUnsafeSysctls: [\"net.core.*\", kernel/msgmax, kernel.shm*, fs.mqueue.msg_max]\\n' >>" + c},
		{what: "a feature gate that kubelet has", breaks: "echo 'featureGates: {KubeletTracing: true}' >>" + c},

		{what: "cgroup v1", breaks: "mount -t tmpfs tmpfs /sys/fs/cgroup", mends: "umount /sys/fs/cgroup", check: "kubelet.cgroup-v1",
			says: "configured to not run on a host using cgroup v1"},
		{what: "LimitedSwap on cgroup v1", breaks: "mount -t tmpfs tmpfs /sys/fs/cgroup; printf 'failCgroupV1: false\\nfailSwapOn: false\\n" +
			"memorySwap: {swapBehavior: LimitedSwap}\\n' >>" + c, mends: "umount /sys/fs/cgroup", check: "kubelet.cgroup-v1",
			says: "only supported with cgroupv2"},
		{what: "zram",
			breaks: "printf 'Filename Type Size Used Priority\\n/dev/zram0 partition 9 0 100\\n' >/etc/swaps; mount --bind /etc/swaps /proc/swaps",
			mends:  "umount /proc/swaps", check: "swap", says: "running with swap on is not supported"},
		{what: "kernel.panic",
			breaks: "echo 0 >/etc/panic; mount --bind /etc/panic /proc/sys/kernel/panic; echo 'protectKernelDefaults: true' >>" + c,
			mends:  "umount /proc/sys/kernel/panic", check: "kubelet.protect-kernel-defaults", says: "invalid kernel flag: kernel/panic"},
		{what: "no /dev/kmsg", breaks: "mount -t tmpfs tmpfs /dev; mknod -m 666 /dev/null c 1 3", mends: "umount -l /dev", check: "kubelet.kmsg",
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

		{what: "a CPU manager with a changed policy", breaks: "printf 'cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n' >>" + c +
			"; " + cpuState(`{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`), check: "kubelet.state",
			says: "differs from state checkpoint policy"},
		{what: "the same, as a flag", flags: "--cpu-manager-policy=static --reserved-cpus=0",
			breaks: cpuState(`{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`), check: "kubelet.state",
			says: "differs from state checkpoint policy"},
		{what: "a state from a machine with more CPUs", breaks: "printf 'cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n' >>" + c +
			"; " + cpuState(`{"policyName":"static","defaultCpuSet":"0-511","checksum":2077242100}`), check: "kubelet.state",
			says: "doesn't match with CPUs in state"},
		{what: "an empty CPU manager state", breaks: ": >/var/lib/kubelet/cpu_manager_state", check: "kubelet.state", says: "unexpected end of JSON input"},
		{what: "an empty memory manager state", breaks: ": >/var/lib/kubelet/memory_manager_state", check: "kubelet.state",
			says: "unexpected end of JSON input"},
		{what: "an empty Pod state", breaks: ": >/var/lib/kubelet/allocated_pods_state", check: "kubelet.state",
			says: "unexpected end of JSON input"},
		{what: "an empty device state", breaks: ": >/var/lib/kubelet/dra_manager_state", check: "kubelet.state",
			says: "unexpected end of JSON input"},
		{what: "the state of a kubelet that ran", breaks: cpuState(`{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`)},

		{what: "a reservation that is not a quantity", breaks: "echo 'kubeReserved: {memory: 500MB}' >>" + c, check: "kubelet.resources",
			says: "failed to parse quantity"},
		{what: "a reservation of an unsupported resource", flags: "--system-reserved=hugepages-2Mi=1Gi", check: "kubelet.resources",
			says: "cannot reserve"},
		{what: "a reservation of more memory than the machine has", breaks: "echo 'kubeReserved: {memory: 100Ti}' >>" + c, check: "kubelet.resources",
			says: "Expected capacity >= reservation"},
		{what: "the same, by eviction", flags: "--eviction-hard=memory.available<100Ti", check: "kubelet.resources",
			says: "Expected capacity >= reservation"},
		{what: "a reservation of more CPUs than the machine has", breaks: "echo 'kubeReserved: {cpu: \"512\"}' >>" + c, check: "kubelet.resources",
			says: "Expected capacity >= reservation"},
		{what: "an eviction threshold that is not a quantity", breaks: "echo 'evictionHard: {memory.available: 1GB}' >>" + c, check: "kubelet.resources",
			says: "quantities must match"},
		{what: "an eviction threshold of zero", breaks: "echo 'evictionHard: {nodefs.available: \"0\"}' >>" + c, check: "kubelet.resources",
			says: "must be positive"},
		{what: "a soft eviction without a period", breaks: "echo 'evictionSoft: {memory.available: 5%}' >>" + c, check: "kubelet.resources",
			says: "grace period must be specified"},
		{what: "reserved CPUs that do not exist", flags: "--reserved-cpus=0-511", check: "kubelet.resources", says: "is not a subset of online-cpus"},
		{what: "a static CPU manager without a reserved CPU", breaks: "echo 'cpuManagerPolicy: static' >>" + c, check: "kubelet.resources",
			says: "unable to determine reserved CPU resources"},
		{what: "an unknown CPU manager", breaks: "echo 'cpuManagerPolicy: dynamic' >>" + c, check: "kubelet.resources", says: "unknown policy"},
		{what: "quantities of every kind", flags: "--kube-reserved=cpu=.5,memory=1e6,pid=1k --eviction-soft=memory.available<1.5Mi " +
			"--eviction-soft-grace-period=memory.available=1m30s", breaks: "printf 'systemReserved: {memory: 1.Mi, ephemeral-storage: 1Ki, cpu: 100m}\n" +
			"evictionHard: {memory.available: 0%%, nodefs.available: 1k, imagefs.available: 0.5%%}\ncpuManagerPolicy: static\n' >>" + c},

		{what: "no runtime", flags: "--container-runtime-endpoint=unix:///run/none.sock", check: "kubelet.runtime",
			says: "validate CRI v1 runtime API"},
		{what: "no runtime, and none named", breaks: "mv /run/containerd/containerd.sock /run/away.sock",
			mends: "mv /run/away.sock /run/containerd/containerd.sock", check: "kubelet.runtime", says: "validate CRI v1 runtime API"},
		{what: "a runtime without CRI", flags: "--container-runtime-endpoint=unix:///run/bare.sock", check: "kubelet.runtime",
			says: "validate CRI v1 runtime API"},

		{what: "no kubeconfig", flags: certificates, breaks: "rm /etc/kubernetes/kubelet.conf", check: "kubelet.certificate",
			says: "unable to load bootstrap kubeconfig"},
		{what: "an expired certificate", flags: certificates, breaks: "cp /etc/kubernetes/expired.conf /etc/kubernetes/kubelet.conf",
			check: "kubelet.certificate", says: "unable to load bootstrap kubeconfig"},
		{what: "an emptied kubeconfig", flags: certificates, breaks: ": >/etc/kubernetes/kubelet.conf", check: "kubelet.certificate",
			says: "unable to load bootstrap kubeconfig"},
		{what: "a kubeconfig without a certificate", flags: certificates, breaks: "sed -i /client-/d /etc/kubernetes/kubelet.conf",
			check: "kubelet.certificate", says: "unable to load bootstrap kubeconfig"},
		{what: "an emptied certificate that was rotated", flags: "--kubeconfig=/etc/kubernetes/kubelet.conf " + rotates,
			breaks: "mkdir /var/lib/kubelet/pki; : >/var/lib/kubelet/pki/kubelet-client-current.pem", check: "kubelet.certificate",
			says: "could not convert data"},
		{what: "the same, with a bootstrap kubeconfig", flags: "--kubeconfig=/etc/kubernetes/kubelet.conf " + rotates +
			" --bootstrap-kubeconfig=/etc/kubernetes/valid.conf", check: "kubelet.certificate", says: "could not convert data",
			breaks: "mkdir /var/lib/kubelet/pki; : >/var/lib/kubelet/pki/kubelet-client-current.pem"},
		{what: "a certificate to rotate", flags: certificates + " " + rotates},
		{what: "an expired certificate, and no bootstrap", flags: "--kubeconfig=/etc/kubernetes/expired.conf"},
		{what: "a valid certificate", flags: certificates},

		{what: "port 10250 is taken", breaks: "LISTEN 127.0.0.1:10250", check: "kubelet.ports", says: "address already in use"},
		{what: "port 10248 is taken", breaks: "LISTEN 127.0.0.1:10248"},
		{what: "no resolv.conf", breaks: "echo 'resolvConf: /etc/none' >>" + c},
	}
}

// cpuState returns a script that writes the state of kubelet's CPU manager.
func cpuState(text string) string { return "echo '" + text + "' >/var/lib/kubelet/cpu_manager_state" }

// TestKubeletCauses breaks a node in every way of the table. nodegate must report the cause, and then a real kubelet must exit because of
// it. With the cause removed, both must succeed. If a real kubelet starts, nodegate must not hold it.
func TestKubeletCauses(t *testing.T) {
	hosttest.NeedRoot(t)
	s, err := NewSpace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	n := newKubeletNode(t, s)
	for _, group := range []struct {
		name   string
		causes []cause
	}{{"before the lock file", earlyCauses()}, {"after the lock file", lateCauses()}} {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.causes {
				t.Run(c.what, func(t *testing.T) { n.try(t, c) })
			}
		})
	}
}

// try breaks the node, and mends it.
func (n *kubeletNode) try(t *testing.T, c cause) {
	t.Helper()
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
	case c.check == "" && (named != "" || !ran):
		t.Errorf("nodegate holds kubelet because of %q; kubelet runs: %v; its log:\n%s", named, ran, said)
	case c.check != "" && (named != c.check || ran || !strings.Contains(said, c.says)):
		t.Errorf("nodegate reports %q, want %s; kubelet runs: %v; its log:\n%s\nwant %q", named, c.check, ran, said, c.says)
	}
	n.runScript(t, c.mends)()
	if c.check == "" {
		return
	}
	n.writeConfig(t, "")
	if named := n.findHoldingCheck(t); named != "" {
		t.Errorf("after mending, nodegate reports %s", named)
	}
	if ran, said := n.startKubelet(t); !ran {
		t.Errorf("after mending, kubelet exits:\n%s", said)
	}
}
