# The policy that every carrier must apply (TestCarriers).
use "kubernetes" {}

sysctl "net.core.somaxconn" {
  value  = 8192
  reason = "The test's own."
}

sysctl "net.netfilter.nf_conntrack_max" {
  min    = 300000
  reason = "The test's own: more than the kernel's default here."
}

link "overlay" {
  match {
    kind = "vxlan"
    name = "flannel*"
  }
  offload = { tx-checksum-ip-generic = false }
  mtu     = 1400
  sysctl  = { "net.ipv4.conf.*.rp_filter" = 0 }
  reason  = "The test's own."
}
