//go:build cluster

package cluster

import "strings"

// lateCauses make kubelet exit after its lock file, or keep its Node from working. A comment names the function that returns the error;
// the paths are those of kubernetes 1.37.
func lateCauses() []cause {
	const c = "/var/lib/kubelet/config.yaml"
	const k = "/etc/kubernetes/kubelet.conf"
	const joined = "--kubeconfig=" + k
	const webhook = "sed -i 's/webhook: {enabled: false}/webhook: {enabled: true}/' " + c + "; "
	// subtree makes an empty cgroup the root, so that kubelet's own cgroups are below it.
	const subtree = "echo +hugetlb >/run/cgroup2/cgroup.subtree_control; mkdir -p /run/cgroup2/nodegate-causes; mount --bind /run/cgroup2/nodegate-causes /sys/fs/cgroup; " +
		"sed -i '/cgroupsPerQOS/d; /enforceNodeAllocatable/d' " + c + "; "
	const noSubtree = "umount /sys/fs/cgroup; find /run/cgroup2/nodegate-causes -depth -type d -exec rmdir {} +"
	const reserve = subtree + "printf 'kubeReserved: {cpu: 10m}\nenforceNodeAllocatable: [pods, kube-reserved]\n' >>" + c + "; "
	const v1 = "mount -t tmpfs tmpfs /sys/fs/cgroup; for c in cpu cpuacct cpuset pids; do mkdir /sys/fs/cgroup/$c; mount -t cgroup -o $c cgroup " +
		"/sys/fs/cgroup/$c; done; echo 'failCgroupV1: false' >>" + c + "; "
	const static = "echo 'memoryManagerPolicy: Static' >>" + c + "; "
	const cpus = "printf 'cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n' >>" + c + "; "
	options := func(line string) string { return cpus + "echo 'cpuManagerPolicyOptions: {" + line + "}' >>" + c }
	topology := func(line string) string {
		return "printf 'topologyManagerPolicy: restricted\ntopologyManagerPolicyOptions: {" + line + "}\n' >>" + c
	}
	conf := func(script string) string { return "sed -i '" + script + "' " + k }
	const provides = "--image-credential-provider-config=/etc/providers.yaml --image-credential-provider-bin-dir=/etc/bin"
	provider := func(fields string) string {
		return `printf 'apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- {` + fields + `}\n' >/etc/providers.yaml; ` +
			"mkdir -p /etc/bin; ln -sf /bin/true /etc/bin/ecr"
	}
	plugin := func(fields string) string { return conf("s|user: {client[^}]*}|user: {exec: {" + fields + "}}|") }
	return []cause{
		// run in cmd/kubelet/app/server.go
		{what: "an unusable lock file", flags: "--lock-file=/etc/none/lock", check: "kubelet.values", says: "unable to acquire file lock"},
		{what: "a lock file", flags: "--lock-file=/run/kubelet.lock --exit-on-lock-contention"},
		{what: "lock contention without a file", flags: "--exit-on-lock-contention", check: "kubelet.values",
			says: "cannot exit on lock file contention"},

		// buildKubeletClientConfig in server.go, client-go's tools/clientcmd and rest
		{what: "a kubeconfig", flags: joined},
		{what: "no kubeconfig, without a bootstrap", flags: joined, breaks: "rm " + k, check: "kubelet.certificate", says: "no such file"},
		{what: "a kubeconfig that is not YAML", flags: joined, breaks: "echo 'a: [' >" + k, check: "kubelet.kubeconfig",
			says: "error loading config file"},
		{what: "a context that does not exist", flags: joined, breaks: conf("s/^current-context:.*/current-context: none/"),
			check: "kubelet.kubeconfig", says: "context was not found"},
		{what: "no current context", flags: joined, breaks: conf("/^current-context:/d"), check: "kubelet.kubeconfig", says: "no configuration"},
		{what: "a user that does not exist", flags: joined, breaks: conf("s/user: valid/user: none/"), check: "kubelet.kubeconfig",
			limps: true},
		{what: "a cluster that does not exist", flags: joined, breaks: conf("s/{cluster: cluster,/{cluster: none,/"), check: "kubelet.kubeconfig",
			says: "no configuration"},
		{what: "no server", flags: joined, breaks: conf("s/server: [^,]*/server: \"\"/"), check: "kubelet.kubeconfig", says: "no server found"},
		{what: "an invalid server", flags: joined, breaks: conf("s|server: [^,]*|server: a/b|"), check: "kubelet.kubeconfig",
			says: "host must be a URL"},
		{what: "a server without a scheme", flags: joined, breaks: conf("s/server: [^,]*/server: 127.0.0.1:6443/")},
		{what: "no authority file", flags: joined, breaks: conf("s/certificate-authority-data: [^}]*/certificate-authority: none.crt/"),
			check: "kubelet.kubeconfig", says: "unable to read certificate-authority"},
		{what: "an authority without a certificate", flags: joined, breaks: conf("s/certificate-authority-data: [^}]*/certificate-authority-data: eAo=/"),
			check: "kubelet.kubeconfig", says: "unable to load root certificates"},
		{what: "an authority beside skipped verification", flags: joined, breaks: conf("s/{server:/{insecure-skip-tls-verify: true, server:/"),
			check: "kubelet.kubeconfig", says: "insecure flag is not allowed"},
		{what: "no certificate file", flags: joined, breaks: conf("s/client-certificate-data: [^,]*/client-certificate: none.crt/"),
			check: "kubelet.certificate kubelet.kubeconfig", says: "unable to read client-cert"},
		{what: "no key file", flags: joined, breaks: conf("s/client-key-data: [^}]*/client-key: none.key/"), check: "kubelet.kubeconfig",
			says: "unable to read client-key"},
		{what: "no key", flags: joined, breaks: conf("s/, client-key-data: [^}]*//"), check: "kubelet.kubeconfig", says: "client-key must be specified"},

		// BuildAuthn and BuildAuthz in cmd/kubelet/app/auth.go
		{what: "webhook authentication without a kubeconfig", breaks: webhook, check: "kubelet.kubeconfig",
			says: "no client provided, cannot use webhook authentication"},
		{what: "webhook authorization without a kubeconfig", breaks: "sed -i s/AlwaysAllow/Webhook/ " + c, check: "kubelet.kubeconfig",
			says: "no client provided, cannot use webhook authorization"},
		{what: "the defaults without a kubeconfig", breaks: "sed -i '/^auth/d' " + c, check: "kubelet.kubeconfig",
			says: "no client provided, cannot use webhook authentication"},
		{what: "webhooks with a kubeconfig", flags: joined, breaks: webhook},

		// PreInitRuntimeService in pkg/kubelet/kubelet.go, k8s.io/cri-client
		{what: "no image service", breaks: "echo 'imageServiceEndpoint: unix:///run/none.sock' >>" + c, check: "kubelet.runtime",
			says: "validate CRI v1 image API"},
		{what: "an image service without CRI", breaks: "echo 'imageServiceEndpoint: unix:///run/bare.sock' >>" + c, check: "kubelet.runtime",
			says: "validate CRI v1 image API"},
		{what: "an image service", breaks: "ln -s /run/containerd/containerd.sock /run/images.sock; echo 'imageServiceEndpoint: " +
			"unix:///run/images.sock' >>" + c, mends: "rm /run/images.sock"},
		{what: "a runtime over TCP", breaks: "echo 'containerRuntimeEndpoint: tcp://127.0.0.1:1' >>" + c, check: "kubelet.runtime",
			says: "only support unix socket endpoint"},

		// NewContainerManager in pkg/kubelet/cm/container_manager_linux.go
		{what: "no root cgroup", breaks: subtree + "echo 'cgroupRoot: /nosuchroot' >>" + c, mends: noSubtree, check: "kubelet.cgroups",
			says: "could not read controllers for cgroup"},
		{what: "a root cgroup without a controller that the machine has", breaks: subtree + "mkdir /sys/fs/cgroup/root; echo 'cgroupRoot: " +
			"/root' >>" + c, mends: noSubtree, check: "kubelet.cgroups", says: "has some missing controllers"},
		{what: "a root cgroup", breaks: subtree + "echo +hugetlb >/sys/fs/cgroup/cgroup.subtree_control; mkdir /sys/fs/cgroup/root; echo " +
			"'cgroupRoot: /root' >>" + c, mends: noSubtree, check: "kubelet.cgroups", limps: true},
		{what: "cgroup v1 without memory", breaks: v1, mends: "umount /sys/fs/cgroup/* /sys/fs/cgroup", check: "kubelet.cgroups",
			says: "memory"},
		{what: "cgroup v1 without any controller", breaks: "mount -t tmpfs tmpfs /sys/fs/cgroup; echo 'failCgroupV1: false' >>" + c,
			mends: "umount /sys/fs/cgroup", check: "kubelet.cgroups", says: "cgroup"},
		{what: "cgroup v1", breaks: v1 + "mkdir /sys/fs/cgroup/memory; mount -t cgroup -o memory cgroup /sys/fs/cgroup/memory",
			mends: "umount /sys/fs/cgroup/* /sys/fs/cgroup"},
		{what: "cgroup v2 without controllers", breaks: subtree, mends: noSubtree, check: "kubelet.cgroups", limps: true},

		// enforceNodeAllocatableCgroups in pkg/kubelet/cm/node_container_manager_linux.go
		{what: "no cgroup for kube-reserved", breaks: reserve + "echo 'kubeReservedCgroup: /kube.slice' >>" + c, mends: noSubtree,
			check: "kubelet.cgroups", says: "Failed to enforce Kube Reserved Cgroup Limits"},
		{what: "a reservation that cannot be enforced", breaks: reserve + "mkdir /sys/fs/cgroup/kube.slice; echo 'kubeReservedCgroup: " +
			"/kube.slice' >>" + c, mends: noSubtree, check: "kubelet.cgroups", says: "Failed to enforce Kube Reserved Cgroup Limits"},
		{what: "a reservation without a cpuset", breaks: strings.Replace(reserve, "cpu: 10m", "ephemeral-storage: 1Mi", 1) +
			"mkdir /sys/fs/cgroup/kube.slice; echo 'kubeReservedCgroup: /kube.slice' >>" + c, mends: noSubtree, check: "kubelet.cgroups",
			says: "cpuset.cpus"},

		// NewManager in pkg/kubelet/cm/topologymanager
		{what: "an unknown topology option", breaks: topology("fast: \"true\""), check: "kubelet.policy-options",
			says: "unknown Topology Manager Policy option"},
		{what: "an invalid topology option", breaks: topology("prefer-closest-numa-nodes: many"), check: "kubelet.policy-options",
			says: "bad value for option"},
		{what: "too few NUMA nodes", breaks: topology("max-allowable-numa-nodes: \"2\""), check: "kubelet.policy-options",
			says: "should not be less than"},
		{what: "topology options", breaks: topology("prefer-closest-numa-nodes: \"true\", max-allowable-numa-nodes: \"16\"")},
		{what: "topology options without a policy", breaks: "echo 'topologyManagerPolicyOptions: {fast: \"true\"}' >>" + c},

		// NewManager, NewNonePolicy and NewStaticPolicyOptions in pkg/kubelet/cm/cpumanager
		{what: "an unknown CPU option", breaks: options("fast: \"true\""), check: "kubelet.policy-options", says: "unknown CPU Manager Policy option"},
		{what: "an alpha CPU option", breaks: options("align-by-socket: \"true\""), check: "kubelet.policy-options",
			says: "Alpha-level Options not enabled"},
		{what: "an alpha CPU option with its gate", breaks: options("align-by-socket: \"true\"") +
			"; echo 'featureGates: {CPUManagerPolicyAlphaOptions: true}' >>" + c},
		{what: "a beta CPU option without its gate", breaks: options("distribute-cpus-across-numa: \"true\"") +
			"; echo 'featureGates: {CPUManagerPolicyBetaOptions: false}' >>" + c, check: "kubelet.policy-options",
			says: "Beta-level Options not enabled"},
		{what: "an invalid CPU option", breaks: options("full-pcpus-only: many"), check: "kubelet.policy-options", says: "bad value for option"},
		{what: "CPU options that exclude each other", breaks: options("distribute-cpus-across-numa: \"true\", " +
			"prefer-align-cpus-by-uncorecache: \"true\""), check: "kubelet.policy-options", says: "can not be used at the same time"},
		{what: "CPU options without a policy", breaks: "echo 'cpuManagerPolicyOptions: {full-pcpus-only: \"true\"}' >>" + c,
			check: "kubelet.policy-options", says: "None policy: received unsupported options"},
		{what: "CPU options, as a flag", flags: "--cpu-manager-policy=static --reserved-cpus=0 --cpu-manager-policy-options=full-pcpus-only=true"},

		// NewManager in pkg/kubelet/cm/memorymanager
		{what: "a memory manager without reservations", breaks: static, check: "kubelet.memory-manager", says: "is not equal to the value"},
		{what: "a memory manager with too little", breaks: static + "printf 'kubeReserved: {memory: 200Mi}\nreservedMemory: [{numaNode: 0, " +
			"limits: {memory: 200Mi}}]\n' >>" + c, check: "kubelet.memory-manager", says: "is not equal to the value"},
		{what: "a memory manager with huge pages", breaks: static + "echo 'reservedMemory: [{numaNode: 0, limits: {memory: 100Mi, " +
			"hugepages-2Mi: 2Mi}}]' >>" + c, check: "kubelet.memory-manager", says: "is not equal to the value"},
		{what: "a NUMA node that does not exist", breaks: static + "echo 'reservedMemory: [{numaNode: 7, limits: {memory: 100Mi}}]' >>" + c,
			check: "kubelet.memory-manager", says: "references a NUMA node"},
		{what: "no memory reserved", breaks: static + "echo 'evictionHard: {}' >>" + c, check: "kubelet.memory-manager",
			says: "you should specify the system reserved memory"},
		{what: "an unknown memory manager", breaks: "echo 'memoryManagerPolicy: static' >>" + c, check: "kubelet.memory-manager",
			says: "unknown policy"},
		{what: "a memory manager with the default eviction", breaks: static + "echo 'reservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]' >>" + c},
		{what: "a memory manager with every reservation", flags: "--reserved-memory=0:memory=1536Mi", breaks: static +
			"printf 'kubeReserved: {memory: 512Mi}\nsystemReserved: {memory: 0.5Gi}\nevictionHard: {memory.available: 512Mi}\n' >>" + c},
		{what: "a memory manager with a percentage", breaks: static + "m=$(sed -n 's/^MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo); printf " +
			"'evictionHard: {memory.available: 25%%}\nreservedMemory: [{numaNode: 0, limits: {memory: \"%d\"}}]\n' $((m * 256)) >>" + c},

		// RunKubelet and NewMainKubelet
		{what: "a negative period", breaks: "echo 'syncFrequency: -1s' >>" + c, check: "kubelet.values", says: "invalid sync frequency"},
		{what: "an invalid minimum reclaim", breaks: "echo 'evictionMinimumReclaim: {memory.available: -1Mi}' >>" + c, check: "kubelet.resources",
			says: "negative eviction minimum reclaim"},
		{what: "a static Pod path that does not exist", breaks: "echo 'staticPodPath: /etc/none' >>" + c},
		{what: "an address that no link has", flags: joined + " --node-ip=203.0.113.9", check: "kubelet.node-ip", limps: true},
		{what: "the unspecified address", flags: "--node-ip=0.0.0.0"},
		{what: "a host name in capitals", flags: joined + " --hostname-override=Node1"},
		{what: "the name localhost", flags: joined + " --hostname-override=localhost", check: "kubelet.node-name", limps: true},
		{what: "an invalid name", flags: joined + " --hostname-override=my_node", check: "kubelet.node-name", limps: true},

		// RegisterCredentialProviderPlugins in pkg/credentialprovider/plugin
		{what: "a provider without images", flags: provides, check: "kubelet.config", says: "matchImages", breaks: provider("name: ecr, " +
			"defaultCacheDuration: 12h, apiVersion: credentialprovider.kubelet.k8s.io/v1")},
		{what: "a provider without a duration", flags: provides, check: "kubelet.config", says: "defaultCacheDuration", breaks: provider("name: ecr, " +
			`matchImages: ["*"], apiVersion: credentialprovider.kubelet.k8s.io/v1`)},
		{what: "a provider of an unknown version", flags: provides, check: "kubelet.config", says: "apiVersion", breaks: provider("name: ecr, " +
			`matchImages: ["*"], defaultCacheDuration: 12h, apiVersion: v1`)},
		{what: "a provider that is not executable", flags: provides, check: "kubelet.config", says: "error inspecting binary executable",
			breaks: provider("name: ecr, "+`matchImages: ["*"], defaultCacheDuration: 12h, apiVersion: credentialprovider.kubelet.k8s.io/v1`) +
				"; rm /etc/bin/ecr; touch /etc/bin/ecr", mends: "rm -r /etc/bin"},

		// initializeModules and initializeRuntimeDependentModules
		{what: "a file system that cannot be measured", flags: "--config=/etc/config.yaml", breaks: "cp " + c +
			" /etc/; mount -t ramfs ramfs /var/lib/kubelet", mends: "umount /var/lib/kubelet", check: "kubelet.root-dir",
			says: "failed to get rootfs info"},
		{what: "the same, not measured", flags: "--config=/etc/config.yaml", breaks: "echo 'localStorageCapacityIsolation: false' >>" + c + "; cp " + c +
			" /etc/; mount -t ramfs ramfs /var/lib/kubelet", mends: "umount /var/lib/kubelet"},
		{what: "no directory for logs", breaks: "mount -t tmpfs -o ro tmpfs /var/log", mends: "umount /var/log", check: "kubelet.root-dir",
			says: "read-only file system"},

		{what: "a plugin that does not exist", flags: joined, breaks: plugin("apiVersion: client.authentication.k8s.io/v1, command: none, " +
			"interactiveMode: Never"), check: "kubelet.kubeconfig", limps: true},
		{what: "a plugin without a mode", flags: joined, breaks: plugin("apiVersion: client.authentication.k8s.io/v1, command: none"),
			check: "kubelet.kubeconfig", says: "interactiveMode must be specified"},
		{what: "a plugin of an unknown version", flags: joined, breaks: plugin("apiVersion: v2, command: none, interactiveMode: Never"),
			check: "kubelet.kubeconfig", says: "invalid apiVersion"},
	}
}
