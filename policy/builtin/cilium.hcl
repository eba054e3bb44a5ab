# Cilium: reverse-path filtering must be off, or its links drop replies.
# Replies arrive on other interfaces than the routing table expects.

use "kubernetes" {}

sysctl "net.ipv4.conf.all.rp_filter" {
  value    = 0
  reason   = "The kernel uses the larger of conf.all and the interface's own value: if all is 1 or 2, 0 on lxc* has no effect."
  symptom  = "Pods lose packets after a restart of the node, since systemd 245."
  tradeoff = "The kernel no longer drops packets with a forged source; the cloud's own filter must do so."
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
