# A node of a kops cluster: at a reboot, nodeup loads br_netfilter after kubelet or not at all.
# kops never sets net.bridge.*.

use "kubernetes" {}

sysctl "net.netfilter.nf_conntrack_max" {
  min      = max(131072, 32768 * node.cpus)
  severity = "warn"
  reason   = "kube-proxy's own minimum; until kube-proxy runs, the kernel's default is a fraction of it."
  symptom  = "dmesg: nf_conntrack: table full, dropping packet."
  tradeoff = "About 320 bytes of memory for each entry in use."
  ref      = "https://github.com/kubernetes/kubernetes/issues/141943"
}
