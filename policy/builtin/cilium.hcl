# Cilium: its own links must not drop what the routing table would send elsewhere.

use "kubernetes" {}

sysctl "net.ipv4.conf.all.rp_filter" {
  value    = 0
  reason   = "The larger of all and the interface counts: with all at 1 or 2, zero on lxc* means nothing."
  symptom  = "Pods lose packets after a restart of the node, since systemd 245."
  tradeoff = "Packets with a forged source are no longer dropped by the kernel; the cloud's own filter must do it."
  ref      = "https://github.com/cilium/cilium/issues/10645"
}

sysctl "net.ipv4.conf.lxc*.rp_filter" {
  value   = 0
  reason  = "Replies of Pods come in by another interface than the route says."
  symptom = "Pods lose packets after a restart of the node, since systemd 245."
  ref     = "https://github.com/cilium/cilium/issues/10645"
}

sysctl "net.ipv4.conf.cilium_*.rp_filter" {
  value   = 0
  reason  = "Replies of Pods come in by another interface than the route says."
  symptom = "Pods lose packets after a restart of the node, since systemd 245."
  ref     = "https://github.com/cilium/cilium/issues/10645"
}
