# What every Linux node that runs kubelet and kube-proxy needs, whatever its CNI.
# Copy it, or build on it with: use "kubernetes" {}

module "br_netfilter" {
  reason   = "Without it, the reply of a Service whose endpoint is on the same bridge bypasses conntrack, keeps the Pod's address, and the client resets the connection."
  ref      = "https://github.com/kubernetes/kubernetes/issues/21613"
  symptom  = "A Pod that calls a Service times out when the endpoint is on the same node, and only then."
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
  symptom  = "A Pod that calls a Service times out when the endpoint is on the same node, and only then."
  tradeoff = "Bridged packets of virtual machines on the same node are filtered too: libvirt sets it to 0 for that."
}

sysctl "net.bridge.bridge-nf-call-ip6tables" {
  value    = 1
  reason   = "The same, for IPv6 Services."
  ref      = "https://kubernetes.io/docs/setup/production-environment/container-runtimes/"
  symptom  = "The same, for IPv6 Services."
  tradeoff = "Where IPv6 is disabled on the node and yet bridged, bridged IPv6 is dropped."
}

sysctl "net.ipv4.ip_forward" {
  value    = 1
  reason   = "Without it the node drops every packet between its Pods and other machines."
  ref      = "https://kubernetes.io/docs/setup/production-environment/container-runtimes/"
  symptom  = "Pods reach their own node and nothing else."
  tradeoff = "The node routes for anybody who can send to it: keep the firewall's FORWARD rules."
}

sysctl "net.netfilter.nf_conntrack_tcp_be_liberal" {
  value    = 1
  reason   = "A packet that conntrack calls INVALID is not translated; the peer answers it with a reset. kube-proxy reads this once, when it starts."
  ref      = "https://github.com/kubernetes/kubernetes/issues/74839"
  symptom  = "Long downloads break off with: connection reset by peer."
  tradeoff = "conntrack no longer tells packets out of the window from good ones; the Pod's own TCP still does."
}

# kubelet --protect-kernel-defaults refuses to start unless these six are exactly so.
sysctl "vm.overcommit_memory" {
  value   = 1
  reason  = "kubelet exits without it when protectKernelDefaults is on, as kops sets it."
  ref     = "https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/"
  symptom = "kubelet exits at once: invalid kernel flag: vm/overcommit_memory."
}

sysctl "vm.panic_on_oom" {
  value   = 0
  reason  = "kubelet's protectKernelDefaults; the OOM killer, not a panic, ends a Pod that uses too much."
  ref     = "https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/"
  symptom = "kubelet exits at once: invalid kernel flag: vm/panic_on_oom."
}

sysctl "kernel.panic" {
  value   = 10
  reason  = "kubelet's protectKernelDefaults; a panicked node restarts after 10 s."
  ref     = "https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/"
  symptom = "kubelet exits at once: invalid kernel flag: kernel/panic."
}

sysctl "kernel.panic_on_oops" {
  value   = 1
  reason  = "kubelet's protectKernelDefaults; a kernel that oopsed is not trusted further."
  ref     = "https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/"
  symptom = "kubelet exits at once: invalid kernel flag: kernel/panic_on_oops."
}

sysctl "kernel.keys.root_maxkeys" {
  value   = 1000000
  reason  = "kubelet's protectKernelDefaults; every container takes a key."
  ref     = "https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/"
  symptom = "Containers do not start: disk quota exceeded, of the kernel's key ring."
}

sysctl "kernel.keys.root_maxbytes" {
  value   = 25000000
  reason  = "kubelet's protectKernelDefaults; 25 bytes for each of the keys."
  ref     = "https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/"
  symptom = "Containers do not start: disk quota exceeded, of the kernel's key ring."
}

sysctl "fs.inotify.max_user_watches" {
  min      = 524288
  severity = "warn"
  reason   = "kubelet, containerd and log shippers of one user share it; exhausted, `kubectl logs -f` ends with \"no space left on device\"."
  ref      = "https://man7.org/linux/man-pages/man7/inotify.7.html"
  symptom  = "kubectl logs -f ends; kubelet logs: no space left on device, with the disk half empty."
}

sysctl "fs.inotify.max_user_instances" {
  min      = 512
  severity = "warn"
  reason   = "The default of 128 is used up by a few dozen Pods; then \"too many open files\"."
  ref      = "https://man7.org/linux/man-pages/man7/inotify.7.html"
  symptom  = "kubelet and log shippers fail: too many open files."
}

# What else is known to break a node. These only look; `nodegate explain NAME` says more.

check "image.units" {}
check "image.identity" {}
check "sysctl.who-wins" {}
check "ip-forward.writers" {}
check "networkd.foreign-routes" {}
check "writers.networkd-damage" {}
check "networkmanager.cni-links" {}
check "nm-cloud-setup" {}
check "firewalld" {}
check "rp-filter.effective" {}
check "swap" {}
check "cgroup.version" {}
check "kubelet.runtime" {}
check "kubelet.certificate" {}
check "kubelet.ports" {}
check "kubelet.config" {}
check "kubelet.flags" {}
check "kubelet.values" {}
check "kubelet.cgroup-v1" {}
check "kubelet.root-dir" {}
check "kubelet.state" {}
check "kubelet.resources" {}
check "kubelet.kmsg" {}
check "kubelet.cgroup-driver" {}
check "kubelet.resolv-conf" {}
check "kubelet.runtime-nofile" {}
check "kubelet.mounts" {}
check "kubelet.healthz-port" {}
check "kubelet.certificate-dates" {}
check "kubelet.crash-loop" {}
check "nodeport.overlap" {}
check "neighbour.table" {}
check "route-localnet.martian" {}
check "docker.forward-drop" {}
check "mtu.chain" {}

check "bridge.netfilter" {}
check "bridge.netfilter-ipv6" {}

check "conntrack.invalid" {}
check "conntrack.be-liberal-changed" {}
check "conntrack.full" {}
check "conntrack.headroom" {}
check "conntrack.hashsize" {}
check "conntrack.kube-proxy-overwrites" {}

check "kubeproxy.postrouting" {}
check "iptables.version" {}
check "iptables.backends" {}
check "iptables.bare-drop" {}
check "iptables.mark-regression" {}
check "packetfilter.kernel-can" {}
check "packetfilter.kernel-can-cni" {}
check "packetfilter.mark-bits" {}
check "packetfilter.host-port" {}
check "packetfilter.forward-drop" {}
check "accept-ra.forwarding" {}
check "src-valid-mark.cilium" {}
check "cni.leftovers" {}

gate {
  unit       = "kubelet.service"
  budget     = "2m"
  interval   = "2s"
  on_timeout = "hold"
  repair     = true
}
