# The requirements of every Linux node that runs kubelet and kube-proxy, with any CNI.
# Copy this file, or include it with: use "kubernetes" {}

module "br_netfilter" {
  reason   = "Without it, the reply of a Service whose endpoint is on the same bridge bypasses conntrack and keeps the Pod's address, so the client resets the connection."
  ref      = "https://github.com/kubernetes/kubernetes/issues/21613"
  symptom  = "A Pod that calls a Service times out, but only if the endpoint is on the same node."
  tradeoff = "Every bridged packet passes iptables, which costs CPU."
}

module "overlay" {
  reason  = "containerd and CRI-O mount container images with it."
  ref     = "https://kubernetes.io/docs/setup/production-environment/container-runtimes/"
  symptom = "Containers do not start: failed to mount overlay: no such device."
}

module "nf_conntrack" {
  reason  = "kube-proxy's NAT needs it, and the net.netfilter parameters exist only once it is loaded."
  ref     = "https://docs.kernel.org/networking/nf_conntrack-sysctl.html"
  symptom = "No Service address answers on this node."
}

sysctl "net.bridge.bridge-nf-call-iptables" {
  value    = 1
  reason   = "Packets between Pods on one bridge must pass iptables, or the reply of a same-node Service is not translated back."
  ref      = "https://kubernetes.io/docs/setup/production-environment/container-runtimes/"
  symptom  = "A Pod that calls a Service times out, but only if the endpoint is on the same node."
  tradeoff = "Bridged packets of virtual machines on the same node are filtered too; libvirt sets it to 0 to avoid this."
}

sysctl "net.bridge.bridge-nf-call-ip6tables" {
  value    = 1
  reason   = "The same, for IPv6 Services."
  ref      = "https://kubernetes.io/docs/setup/production-environment/container-runtimes/"
  symptom  = "The same, for IPv6 Services."
  tradeoff = "If IPv6 is disabled on the node but still bridged, bridged IPv6 packets are dropped."
}

sysctl "net.ipv4.ip_forward" {
  value    = 1
  reason   = "Without it the node drops every packet between its Pods and other machines."
  ref      = "https://kubernetes.io/docs/setup/production-environment/container-runtimes/"
  symptom  = "Pods reach their own node and nothing else."
  tradeoff = "The node routes packets from any machine that can reach it: keep the firewall's FORWARD rules."
}

sysctl "net.netfilter.nf_conntrack_tcp_be_liberal" {
  value    = 1
  reason   = "A packet that conntrack marks INVALID is not translated, and the peer answers it with a reset. kube-proxy reads this setting once, when it starts."
  ref      = "https://github.com/kubernetes/kubernetes/issues/74839"
  symptom  = "Long downloads break off with: connection reset by peer."
  tradeoff = "conntrack no longer rejects packets outside the TCP window; the Pod's own TCP still does."
}

# kubelet --protect-kernel-defaults refuses to start unless these six have exactly these values.
sysctls {
  values = {
    "vm.overcommit_memory" = 1
    "vm.panic_on_oom"      = 0  # out of memory, the OOM killer ends a Pod instead of a panic ending the node
    "kernel.panic"         = 10 # seconds until a node restarts after a panic
    "kernel.panic_on_oops" = 1  # a kernel must not keep running after an oops
  }
  reason  = "kubelet exits without it if protectKernelDefaults is on, which kops sets."
  ref     = "https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/"
  symptom = "kubelet exits at once: invalid kernel flag."
}

sysctls {
  values = {
    "kernel.keys.root_maxkeys"  = 1000000
    "kernel.keys.root_maxbytes" = 25000000 # 25 bytes for each key
  }
  reason  = "kubelet exits without it if protectKernelDefaults is on; every container uses a key."
  ref     = "https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/"
  symptom = "Containers do not start: disk quota exceeded, of the kernel's key ring."
}

sysctl "fs.inotify.max_user_watches" {
  min      = 524288
  severity = "warn"
  reason   = "All programs of one user (kubelet, containerd, log shippers) share this limit; when it is reached, `kubectl logs -f` ends with \"no space left on device\"."
  ref      = "https://man7.org/linux/man-pages/man7/inotify.7.html"
  symptom  = "`kubectl logs -f` ends, and kubelet logs \"no space left on device\" although the disk has space."
}

sysctl "fs.inotify.max_user_instances" {
  min      = 512
  severity = "warn"
  reason   = "A few dozen Pods use up the default of 128; then programs fail with \"too many open files\"."
  ref      = "https://man7.org/linux/man-pages/man7/inotify.7.html"
  symptom  = "kubelet and log shippers fail: too many open files."
}

# Other known problems. These checks change nothing; `nodegate explain NAME` describes each of them.

check "image.units" {}
check "image.boot-order" {}
check "kubelet.unit" {}
check "kubelet.facts" {}
check "image.identity" {}
check "image.swap" {}
check "image.mounts" {}
check "image.fapolicyd" {}
check "sysctl.who-wins" {}
check "ip-forward.writers" {}
check "networkd.foreign-routes" {}
check "writers.networkd-damage" {}
check "networkd.cni-links" {}
check "networkmanager.cni-links" {}
check "links.default-route" {}
check "cni.ipv6-disabled" {}
check "nm-cloud-setup" {}
check "firewalld" {}
check "rp-filter.effective" {}
check "swap" {}
check "kubelet.runtime" {}
check "kubelet.ports" {}
check "kubelet.config" {}
check "kubelet.values" {}
check "kubelet.cgroup-v1" {}
check "kubelet.root-dir" {}
check "kubelet.cgroup-driver" {}
check "kubelet.resolv-conf" {}
check "kubelet.runtime-nofile" {}
check "kubelet.mounts" {}
check "kubelet.healthz-port" {}
check "kubelet.certificate-dates" {}
check "kubelet.node-ip" {}
check "kubelet.node-name" {}
check "kubelet.exit" {}
check "nodeport.overlap" {}
check "neighbour.table" {}
check "mtu.chain" {}

check "bridge.netfilter" {}

check "conntrack.invalid" {}
check "conntrack.be-liberal-changed" {}
check "conntrack.full" {}
check "conntrack.headroom" {}
check "conntrack.hashsize" {}
check "conntrack.kube-proxy-overwrites" {}

check "kubeproxy.postrouting" {}
check "iptables.backends" {}
check "iptables.bare-drop" {}
check "packetfilter.kernel-can" {}
check "packetfilter.kernel-can-cni" {}
check "packetfilter.forward-drop" {}
check "packetfilter.input-drop" {}
check "kubeproxy.way" {}
check "accept-ra.forwarding" {}
check "cni.leftovers" {}

gate {
  unit       = "kubelet.service"
  budget     = "2m"
  interval   = "2s"
  on_timeout = "hold"
  repair     = true
}
