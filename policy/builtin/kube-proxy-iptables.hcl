# kube-proxy in iptables mode.

use "kubernetes" {}

sysctl "net.netfilter.nf_conntrack_max" {
  min      = max(131072, 32768 * node.cpus)
  severity = "warn"
  reason   = "kube-proxy's own minimum: since 1.29 it writes exactly this value, even if that lowers the current one."
  symptom  = "dmesg: nf_conntrack: table full, dropping packet."
  tradeoff = "About 320 bytes of memory for each entry in use."
  ref      = "https://github.com/kubernetes/kubernetes/issues/141943"
}
