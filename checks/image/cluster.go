package image

// kubeletDirs are the directories in which kubelet keeps its state: its own default, and the directories of distributions.
func kubeletDirs() []string {
	return []string{"/var/lib/kubelet", "/var/lib/rancher/k3s/agent/kubelet", "/var/lib/k0s/kubelet",
		"/var/snap/microk8s/common/var/lib/kubelet"}
}

// clusterLeftovers are what a node of a cluster has.
func clusterLeftovers() []leftover {
	const rancher = "/var/lib/rancher/*"
	return []leftover{
		{kind: "kubelet's certificate", patterns: joinPaths(kubeletDirs(), "pki/*")},
		{kind: "kubelet's state", patterns: joinPaths(kubeletDirs(), "cpu_manager_state", "memory_manager_state", "dra_manager_state",
			"allocated_pods_state", "actuated_pods_state", "pod_status_manager_state", "device-plugins/kubelet_internal_checkpoint", "pods/*",
			"checkpoints/*", ".kubelet-last-known-config")},
		{kind: "kubeconfig", holds: secrets(), patterns: []string{
			"/etc/kubernetes/*.conf", "/etc/kubernetes/*kubeconfig*", "/etc/kubernetes/*/*kubeconfig*", "/var/lib/kubelet/*kubeconfig*",
			"/var/lib/kube-proxy/*", "/var/lib/kubernetes/*", "/var/lib/k0s/*.conf", "/var/snap/microk8s/*/credentials/*",
			"/etc/rancher/*/*.yaml", "/var/lib/rancher/*/agent/*.kubeconfig", "/var/lib/rancher/*/server/cred/*",
		}, except: []string{"/etc/rancher/*/config.yaml", "/etc/rancher/*/registries.yaml"}},
		{kind: "the cluster's key", holds: secrets(), patterns: []string{
			"/etc/kubernetes/pki/*", "/etc/kubernetes/pki/*/*", "/etc/kubernetes/ssl/*", "/etc/kubernetes/tls/*", "/etc/kubernetes/certs/*",
			"/etc/kubernetes/*.key", "/etc/kubernetes/*.pem", "/srv/kubernetes/*", "/srv/kubernetes/*/*", "/var/lib/k0s/pki/*",
			"/var/lib/k0s/pki/*/*",
			"/var/snap/microk8s/*/certs/*",
		}},
		{kind: "token to join a cluster", holds: secrets(), patterns: []string{
			"/etc/kubernetes/*.yaml", "/etc/kubernetes/*.yml", "/etc/kubernetes/*.env", "/etc/kubernetes/*.sh", "/etc/kubeadm*", "/etc/kubeadm/*",
			"/run/kubeadm/*", "/opt/kubeadm*", "/usr/local/bin/*join*.sh", "/opt/*join*.sh",
			"/etc/k0s/*token*", "/etc/k0s.token",
		}},
		{kind: "token to join a cluster", holds: secrets(), patterns: []string{"/etc/rancher/*/config.yaml", "/etc/rancher/*/config.yaml.d/*"},
			remedy: deleteLines(`^[[:space:]]*"?(token|agent-token)"?[[:space:]]*:`)},
		{kind: "password of a registry", holds: secrets(), patterns: []string{"/etc/rancher/*/registries.yaml"},
			remedy: deleteLines(`^[[:space:]]*"?(password|auth|identity_token|token)"?[[:space:]]*:[[:space:]]*[^[:space:]]`)},
		{kind: "token to join a cluster", holds: secrets(), patterns: []string{
			"/etc/systemd/system/k3s*.service.env", "/etc/systemd/system/rke2*.env", "/etc/default/k3s*", "/etc/default/rke2*",
			"/etc/sysconfig/k3s*",
			"/etc/sysconfig/rke2*",
		}, remedy: deleteLines(`(K3S|RKE2)_(TOKEN|AGENT_TOKEN|CLUSTER_SECRET)=`)},
		{kind: "password of a registry", holds: secrets(), patterns: []string{"/var/lib/kubelet/config.json", "/var/lib/kubelet/.dockercfg",
			"/var/lib/kubelet/.docker/config.json"}},
		{kind: "node password", patterns: []string{"/etc/rancher/node/password", "/etc/rancher/*/node-password"}},
		{kind: "k3s or RKE2 state", patterns: []string{
			rancher + "/agent/*.key", rancher + "/agent/etc/*kubeconfig*", rancher + "/server/token", rancher + "/server/node-token",
			rancher + "/server/agent-token", rancher + "/server/tls/*", rancher + "/server/cred/*", rancher + "/server/db/*",
		}},
		{kind: "etcd's data", patterns: []string{"/var/lib/etcd/member", "/var/lib/etcd/*/member", "/var/lib/k0s/etcd/*"}},
		{kind: "state of the CNI", patterns: []string{
			"/var/lib/cni/networks/*/*", "/var/lib/cni/results/*", "/var/lib/cni/cache/results/*", "/var/lib/calico/nodename",
			"/var/lib/cni/flannel/*",
			"/var/lib/weave/weave-netdata.db",
		}},
	}
}
