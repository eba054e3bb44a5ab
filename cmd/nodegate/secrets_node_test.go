package main

import (
	"maps"
	"strings"
	"testing"
	"time"

	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// secretsPolicy enables every check, and settings that the node lacks.
func secretsPolicy() string {
	var b strings.Builder
	b.WriteString(`
variable "unused" { default = "` + policyCanary + `" }
gate { on_held = ["/bin/sh", "-c", "cat >/dev/null"] }
publish { condition = "NodegateReady" }
module "br_netfilter" {}
module "absent" { severity = "warn" }
sysctl "net.ipv4.ip_forward" { value = 1 }
sysctl "net.bridge.bridge-nf-call-iptables" { value = 1 }
sysctl "net.netfilter.nf_conntrack_max" { min = 262144 }
link "uplink" {
  match { name = "eth*" }
  mtu = 9001
}
`)
	for _, name := range catalog.Known().Checks {
		b.WriteString("check \"" + name + "\" {}\n")
	}
	return b.String()
}

// policyCanary is in a variable of the policy that no requirement uses.
const policyCanary = "Cnry7fPolicy"

const kubeadmDropIn = `[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStartPre=/usr/local/bin/prepare --token=x
ExecStartPre=+/usr/local/bin/nodegate gate
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`

const kubeletFlags = "--container-runtime-endpoint=unix:///run/containerd/containerd.sock --node-labels=team=a,node-role.kubernetes.io/worker= " +
	"--node-ip=10.0.0.4 --hostname-override=host --cloud-provider=aws --config-dir=/etc/kubernetes/kubelet.conf.d --pod-infra-container-image=a " +
	"--image-credential-provider-config=/etc/kubernetes/credentials.yaml --image-credential-provider-bin-dir=/opt/credentials"

const kubeletYAML = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 0.0.0.0
authentication:
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
cgroupDriver: systemd
cgroupRoot: /
clusterDNS:
- 10.96.0.10
cpuManagerPolicy: static
memoryManagerPolicy: Static
topologyManagerPolicy: best-effort
reservedSystemCPUs: "0"
enforceNodeAllocatable: [pods, kube-reserved]
kubeReservedCgroup: /kube.slice
evictionHard:
  memory.available: 100Mi
systemReserved:
  cpu: 100m
featureGates:
  NodeSwap: true
resolvConf: /run/systemd/resolve/resolv.conf
rotateCertificates: true
serverTLSBootstrap: true
protectKernelDefaults: true
allowedUnsafeSysctls:
- net.core.somaxconn
registerWithTaints:
- key: dedicated
  value: gpu
  effect: NoSchedule
tlsCertFile: /var/lib/kubelet/pki/tls.crt
tlsPrivateKeyFile: /var/lib/kubelet/pki/tls.key
shutdownGracePeriod: 60s
tlsCipherSuites: [TLS_AES_128_GCM_SHA256]
`

const kubeconfigYAML = `apiVersion: v1
kind: Config
current-context: here
contexts:
- name: here
  context: {cluster: c, user: u}
clusters:
- name: c
  cluster:
    server: https://10.0.0.1:6443
    certificate-authority-data: AAAA
users:
- name: u
  user:
    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem
    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem
    token: abc
`

// secretsNode returns a node with the configuration of many programs, which fails many checks.
func secretsNode(t *testing.T) *hosttest.Machine {
	t.Helper()
	const stat = " S 1 1 1 0 -1 4194560 1 0 0 0 10 20 0 0 20 0 1 0 300 0 0\n"
	files := map[string]string{
		"/etc/systemd/system/kubelet.service.d/10-kubeadm.conf": kubeadmDropIn,
		"/usr/lib/systemd/system/kubelet.service":               "[Unit]\nDescription=kubelet\nAfter=containerd.service\n[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n[Install]\nWantedBy=multi-user.target\n",
		"/etc/systemd/system/k3s.service":                       "[Service]\nExecStart=/usr/local/bin/k3s server --token abc --kube-proxy-arg=proxy-mode=ipvs\n",
		"/etc/systemd/system/docker.service":                    "[Service]\nExecStart=/usr/bin/dockerd -H fd://\nEnvironment=HTTP_PROXY=http://u:p@proxy\n",
		"/usr/local/bin/prepare":                                "#!/bin/sh\nrm -f /var/lib/kubelet/memory_manager_state\ncurl -H x https://h/\n",
		"/usr/bin/kubelet":                                      "\x7fELF\x02\x01\x01", "/usr/local/bin/nodegate": "\x7fELF\x02\x01\x01",
		"/var/lib/kubelet/kubeadm-flags.env": "KUBELET_KUBEADM_ARGS=\"" + kubeletFlags + "\"\n",
		"/etc/default/kubelet":               "KUBELET_EXTRA_ARGS=--v=2\n",
		"/var/lib/kubelet/config.yaml":       kubeletYAML, "/etc/kubernetes/kubelet.conf.d/10.conf": kubeletYAML,
		"/etc/kubernetes/kubelet.conf": kubeconfigYAML, "/var/lib/kube-proxy/kubeconfig": kubeconfigYAML,
		"/etc/kubernetes/credentials.yaml":        "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: ecr\n  env:\n  - {name: A, value: b}\n",
		"/opt/credentials/other":                  "",
		"/etc/kubernetes/pki/ca.crt":              "x",
		"/var/lib/kubelet/pki/tls.crt":            "x",
		"/var/lib/kubelet/pki/tls.key":            "x",
		"/var/lib/kubelet/cpu_manager_state":      `{"policyName": "none", "defaultCpuSet": "0-3", "entries": {"pod": {"c": "1"}}, "checksum": 1}`,
		"/var/lib/kubelet/allocated_pods_state":   "{",
		"/var/lib/kube-proxy/config.conf":         "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\nconntrack:\n  maxPerCore: 32768\nnodePortAddresses: []\n",
		"/etc/rancher/k3s/config.yaml":            "token: abc\nkube-proxy-arg:\n- proxy-mode=ipvs\n- metrics-bind-address=0.0.0.0\n",
		"/etc/cni/net.d/10-calico.conflist":       `{"name": "k8s", "plugins": [{"type": "calico", "x": "y"}, {"type": "portmap"}]}`,
		"/etc/fstab":                              "UUID=1234 / ext4 defaults 0 1\n//h/s /mnt cifs username=a,password=b 0 0\n/dev/sda2 none swap sw 0 0\n",
		"/proc/swaps":                             "Filename\n/dev/sda2 partition 1 0 -2\n",
		"/proc/mounts":                            "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n//h/s /mnt cifs rw,username=a 0 0\n",
		"/proc/cmdline":                           "root=UUID=1 console=ttyS0\n",
		"/etc/modprobe.d/block.conf":              "blacklist br_netfilter\ninstall br_netfilter /bin/false\n",
		"/etc/sysctl.d/10-a.conf":                 "net.ipv4.ip_forward = 0\nnet.netfilter.nf_conntrack_max = 1\n",
		"/etc/sysctl.conf":                        "net.bridge.bridge-nf-call-iptables=0\n",
		"/etc/NetworkManager/NetworkManager.conf": "[main]\nplugins=keyfile\n[keyfile]\nunmanaged-devices=interface-name:eth1\n",
		"/etc/systemd/networkd.conf":              "[Network]\nManageForeignRoutes=yes\n", "/etc/systemd/network/10-eth.network": "[Match]\nName=eth*\n[Network]\nDHCP=yes\nIPForward=no\n",
		"/usr/lib/systemd/network/99-default.link":  checkstest.DefaultLink,
		"/usr/lib/systemd/libsystemd-shared-252.so": "",
		"/usr/lib/udev/rules.d/84-nm.rules":         "ENV{INTERFACE}==\"docker*\", ENV{NM_UNMANAGED}=\"1\"\n",
		"/etc/tuned/active_profile":                 "throughput\n", "/usr/lib/tuned/throughput/tuned.conf": "[main]\nsummary=x\n[sysctl]\nnet.ipv4.ip_forward=0\n",
		"/run/systemd/resolve/resolv.conf": "nameserver 127.0.0.53\nsearch a.b\n",
		"/etc/os-release":                  "ID=debian\nPRETTY_NAME=\"Debian\"\n",
		"/etc/docker/daemon.json":          `{"iptables": true}`,
		"/etc/containerd/config.toml":      "version = 2\ndisabled_plugins = [\"cri\"]\n",
		"/proc/stat":                       "btime 1700000000\n", "/proc/uptime": "7265.31 1.00\n",
		"/proc/7/stat": "7 (kube-proxy)" + stat, "/proc/7/fd/3": "-> socket:[9]",
		"/proc/7/cmdline": "/usr/local/bin/kube-proxy\x00--config=/var/lib/kube-proxy/config.conf\x00--hostname-override=n\x00",
		"/proc/8/stat":    "8 (mysql)" + stat, "/proc/8/cmdline": "mysql\x00-psecret\x00",
		"/proc/9/stat": "9 (containerd)" + stat, "/proc/9/cmdline": "/usr/bin/containerd\x00--config\x00/etc/c\x00",
		"/sys/module/br_netfilter/initstate": "live\n",
		"/sys/devices/system/cpu/online":     "0-1\n",
		"/proc/net/stat/arp_cache":           checkstest.NeighbourHeader + "0010 0 0 0 0 0 0 0 0 0 0 0 0\n",
		"/proc/net/stat/nf_conntrack":        "entries insert_failed drop early_drop\n00000001 0000000a 00000000 00000000\n",
	}
	m := checkstest.Node(files, map[string]string{
		"kernel/hostname":     "node1",
		"net/ipv4/ip_forward": "0", "net/bridge/bridge-nf-call-iptables": "0", "net/ipv4/conf/all/rp_filter": "1", "net/ipv4/conf/flannel.1/rp_filter": "1",
		"net/ipv4/neigh/default/gc_thresh3": "1024", "net/ipv4/conf/all/route_localnet": "1", "net/ipv4/ip_local_port_range": "1024 65535",
		"net/ipv4/ip_local_reserved_ports": "", "fs/inotify/max_user_watches": "1", "fs/inotify/max_user_instances": "1",
		"net/netfilter/nf_conntrack_count": "99", "net/netfilter/nf_conntrack_max": "100", "net/netfilter/nf_conntrack_buckets": "10",
		"net/netfilter/nf_conntrack_tcp_be_liberal": "0", "kernel/panic": "0", "vm/overcommit_memory": "0",
	})
	m.Routes = []string{"eth0"}
	m.Links = map[string]*hosttest.Link{
		"eth0": {MTU: 1500, Driver: "ena", Stats: map[string]uint64{"pps_allowance_exceeded": 3}},
		"cni0": {Kind: "bridge", MTU: 1500}, "veth0": {Kind: "veth", MTU: 1500, Master: "cni0"},
		"flannel.1": {Kind: "vxlan", MTU: 1500, VXLAN: &host.VXLAN{Parent: "eth0"},
			Features: map[string]host.Feature{"tx-checksum-ip-generic": {Available: true, Requested: true, Active: true}}},
	}
	m.Rules = map[string]string{"iptables-nft-save": checkstest.ProxySave, "iptables-legacy-save": "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"}
	m.Units = map[string][2]string{}
	for _, unit := range []string{"firewalld", "systemd-networkd", "NetworkManager", "kubelet", "tuned", "nm-cloud-setup", "docker"} {
		m.Units[unit+".service"] = [2]string{"active", "enabled"}
	}
	m.Version = map[string]string{"kubelet": "Kubernetes v1.35.0", "/usr/bin/kubelet": "Kubernetes v1.35.0", "iptables": "iptables v1.8.2 (nf_tables)"}
	m.Loaded = map[string]host.Loaded{"kubelet.service": {State: "loaded", Changed: true}}
	m.Crashes = map[string]host.Crash{"kubelet.service": {Restarts: 9, Active: "activating", Since: time.Now(), Exit: "exit status 1"}}
	m.Runtime = map[string]string{"v1 unix:///run/containerd/containerd.sock": "containerd 1.7.2"}
	m.Cgroups = map[string]host.CgroupDriver{}
	m.Lacks = map[string][]string{"iptables-restore": {"nfacct"}, "ip6tables-restore": {}, "nft": {}}
	maps.DeleteFunc(m.Files, func(_, text string) bool { return text == "-" })
	return m
}
