# A node of a kops cluster: kops loads br_netfilter from nodeup, at a reboot after kubelet or not at all, and never sets net.bridge.*.

use "kubernetes" {}

sysctl "net.netfilter.nf_conntrack_max" {
  min      = max(131072, 32768 * node.cpus)
  severity = "warn"
  reason   = "kube-proxy's own figure; before it runs, the kernel's default is a fraction of that."
  symptom  = "dmesg: nf_conntrack: table full, dropping packet."
  tradeoff = "About 320 bytes of memory an entry in use."
  ref      = "https://github.com/kubernetes/kubernetes/issues/141943"
}
