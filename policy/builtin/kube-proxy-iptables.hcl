# kube-proxy in iptables mode.

use "kubernetes" {}

sysctl "net.netfilter.nf_conntrack_max" {
  min      = max(131072, 32768 * node.cpus)
  severity = "warn"
  reason   = "kube-proxy's own figure: from 1.29 it writes exactly this, even where that lowers it."
  symptom  = "dmesg: nf_conntrack: table full, dropping packet."
  tradeoff = "About 320 bytes of memory an entry in use."
  ref      = "https://github.com/kubernetes/kubernetes/issues/141943"
}
