package kubelet

import "strings"

// exitRemedyUnknown is the remedy for an error that no row of exitRemedies names.
const exitRemedyUnknown = "read kubelet's last messages: run `journalctl -b -u kubelet _TRANSPORT=stdout | tail`"

// findExitRemedy returns the remedy for the way in which kubelet exited.
func findExitRemedy(how string) string {
	for _, row := range exitRemedies() {
		if strings.Contains(how, row.says) {
			return row.do
		}
	}
	return exitRemedyUnknown
}

// exitRemedy is a part of kubelet's error, and what to do.
type exitRemedy struct{ says, do string }

// exitRemedies returns the known errors. The first row that matches counts. A comment names the source of the errors below it, in
// kubernetes 1.37 unless it names another project.
func exitRemedies() []exitRemedy {
	const (
		flag = "remove the flag from kubelet's unit, its drop-ins, /var/lib/kubelet/kubeadm-flags.env or /etc/default/kubelet"
		file = "correct the file; the KubeletConfiguration reference lists all fields: " +
			"https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/"
		value    = "correct the value in kubelet's configuration or flags"
		quantity = "correct the reservation or eviction threshold; quantities look like 500Mi, 2Gi or 250m"
		reserve  = "reserve less in kubeReserved, systemReserved and evictionHard, or use a larger machine"
		sum      = "set reservedMemory to the sum of kubeReserved, systemReserved and evictionHard memory (100Mi by default)"
		options  = "remove the option, or enable the feature gate that it needs"
		state    = "drain the node, stop kubelet and remove the state file; kubelet creates a new one: " +
			"`rm /var/lib/kubelet/cpu_manager_state /var/lib/kubelet/memory_manager_state`"
		damaged    = "drain the node, stop kubelet and remove the damaged state file below /var/lib/kubelet; kubelet creates a new one"
		kubeconfig = "correct the kubeconfig, or join the node again"
		serving    = "remove the damaged files of kubelet's certificate below /var/lib/kubelet/pki; kubelet then gets a new one"
		provider   = "install the credential provider, and correct --image-credential-provider-config and --image-credential-provider-bin-dir"
		mounted    = "find out why it is read-only (`dmesg`: the kernel remounts a file system with errors)"
	)
	return []exitRemedy{
		// systemd's src/basic/exit-status.c
		{"exit status 203", "install the program that ExecStart= of kubelet's unit names, and make it executable"},
		{"exit status 217", "create the user that User= of kubelet's unit names"},
		{"signal 9", "find out what killed kubelet: run `dmesg | grep -i -e oom -e killed`; if memory is short, raise MemoryMax= of its unit"},

		// run and RunKubelet in cmd/kubelet/app/server.go, github.com/spf13/pflag
		{"unknown flag: ", flag},
		{"invalid argument ", "correct the value of the flag"},
		{"unrecognized feature gate", "remove it from featureGates: its feature is always on or gone"},
		{"labels specified with --node-labels", "remove the label from --node-labels; set it on the API server: `kubectl label node`"},
		{"cloud provider", "set --cloud-provider=external, and run the provider's cloud-controller-manager, or remove the flag"},
		{"failed to merge kubelet configs", "correct the drop-in: each needs apiVersion and kind; " + file},
		{"failed to load kubelet config file", file},
		{"failed to validate kubelet configuration", value},
		{"not known to be namespaced", "remove the sysctl from allowedUnsafeSysctls: it belongs to the whole machine"},
		{"dual-stack pair of IPs", "set --node-ip to one address, or to one of each family"},
		{"failed to validate nodeIP", "correct --node-ip, or start kubelet after the link has its address"},

		// getCurrentCertificateOrBootstrap in client-go's util/certificate, LoadClientConfig in pkg/kubelet/certificate/bootstrap
		{"unable to load bootstrap kubeconfig", certificateRemedy},
		{"could not convert data", "remove kubelet-client-current.pem below /var/lib/kubelet/pki; if the kubeconfig names it, " +
			"join the node again"},
		// BuildAuthn and BuildAuthz in cmd/kubelet/app/auth.go
		{"no client provided, cannot use webhook", "set --kubeconfig; for a kubelet without an API server, set authentication.webhook.enabled: " +
			"false and authorization.mode: AlwaysAllow"},
		// client-go's tools/clientcmd, rest and transport
		{"invalid kubeconfig", kubeconfig},
		{"error loading config file", kubeconfig},
		{"host must be a URL", kubeconfig},
		{"root certificates", kubeconfig},
		{"interactiveMode must be specified", kubeconfig},
		{"invalid apiVersion", kubeconfig},
		// InitializeTLS in server.go, dynamiccertificates in k8s.io/apiserver
		{"missing content for CA bundle", "correct the file of clientCAFile: it must contain PEM certificates"},
		{"serving cert", serving},
		{"must be supplied as a pair", serving},
		{"failed to initialize server certificate manager", serving},

		// PreInitRuntimeService in pkg/kubelet/kubelet.go, k8s.io/cri-client
		{"only support unix socket endpoint", "set containerRuntimeEndpoint to unix:///run/containerd/containerd.sock or the socket of CRI-O"},
		{"validate CRI v1", "start the container runtime, and enable its CRI plugin: `systemctl status containerd`"},
		{"cgroup driver", "set the same cgroup driver for kubelet and the container runtime"},
		// RegisterCredentialProviderPlugins in pkg/credentialprovider/plugin
		{"CRI auth plugins", provider},
		{"plugin binary", provider},

		// NewContainerManager and Start in pkg/kubelet/cm/container_manager_linux.go
		{"invalid kernel flag", "add the six parameters to the policy, as the built-in policy kubernetes does, or set " +
			"protectKernelDefaults: false"},
		{"ubsystem not mounted", "boot with the cgroup controllers: `cgroup_enable=memory` on the kernel command line"},
		{"Reserved Cgroup Limits", "create the cgroup before kubelet starts, or remove its name from enforceNodeAllocatable"},
		{"could not read controllers for cgroup", "create the cgroup before kubelet starts, or correct cgroupRoot"},
		{"some missing controllers", "enable the controllers in cgroup.subtree_control of the cgroups above cgroupRoot"},
		{"some missing paths", "create the cgroup before kubelet starts, or correct cgroupRoot"},
		{"is not a subset of online-cpus", "correct reservedSystemCPUs: it must name CPUs of this machine"},
		{"Expected capacity >= reservation", reserve},
		{"cannot reserve", "remove the resource from the reservation: kubelet reserves cpu, memory, ephemeral-storage and pid"},
		{"failed to parse quantity", quantity},
		// ParseThresholdConfig in pkg/kubelet/eviction
		{"quantities must match", quantity},
		{"eviction", quantity},
		{"grace period must be specified", "set evictionSoftGracePeriod for each threshold of evictionSoft"},

		// pkg/kubelet/cm/cpumanager and its state
		{"static policy requires systemreserved.cpu", "reserve CPU in kubeReserved or systemReserved, or set reservedSystemCPUs"},
		{"reserved CPU resources for static policy", "reserve CPU in kubeReserved or systemReserved, or set reservedSystemCPUs"},
		{"differs from state checkpoint policy", state},
		{"with CPUs in state", state},
		{"present in defaultCpuSet", state},
		{"CPU Manager Policy", options},
		{"received unsupported options", "set cpuManagerPolicy: static, or remove cpuManagerPolicyOptions"},
		{"at the same time", "remove one of the two options"},
		// pkg/kubelet/cm/topologymanager
		{"Topology Manager Policy", options},
		{"opology manager policy", options},
		{"unsupported on machines with more than", "set the topology manager's option max-allowable-numa-nodes, or topologyManagerPolicy: none"},
		{"bad value for option", "correct the option's value: true or false"},
		{"policy option", options},
		// pkg/kubelet/cm/memorymanager and its state
		{"expected machine state is different", state},
		{"not equal to the value", sum},
		{"should specify the system reserved memory", sum},
		{"references a NUMA node", "correct reservedMemory: it must name NUMA nodes of this machine"},
		{"unknown policy: ", "set cpuManagerPolicy to none or static, memoryManagerPolicy to None or Static, and topologyManagerPolicy to " +
			"none, best-effort, restricted or single-numa-node"},
		// pkg/kubelet/checkpointmanager
		{"checkpoint is corrupted", damaged},
		{"unexpected end of JSON input", damaged},
		{"could not restore state from checkpoint", damaged},

		// initializeModules in pkg/kubelet/kubelet.go, the kernel's errors
		{"rootfs info", "put /var/lib/kubelet on a file system with a disk, or set localStorageCapacityIsolation: false"},
		{"open /dev/kmsg", "run `mknod -m 600 /dev/kmsg c 1 11`; for LXC, set `lxc.mount.entry = /dev/kmsg dev/kmsg none bind,create=file`"},
		{"address already in use", "stop the program that listens there: run `ss -ltnp`"},
		{"too many open files", "raise fs.inotify.max_user_instances and fs.inotify.max_user_watches"},
		{"read-only file system", mounted},
		{"no space left on device", "free space: run `crictl rmi --prune` or `journalctl --vacuum-size=100M`"},
		{"invalid configuration: ", kubeconfig}, // client-go's, if none above
	}
}
