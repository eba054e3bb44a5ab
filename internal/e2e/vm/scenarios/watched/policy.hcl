use "kubernetes" {}

link "flannel" {
  match { kind = "vxlan" }
  offload = { tx-checksum-ip-generic = false }
}

link "cni" {
  match { name = "cni0" }
  mtu    = 1450
  sysctl = { "net.ipv4.conf.*.rp_filter" = 2 }
}

sysctl "kernel.panic_on_warn" {
  value = 0
  drift = "report"
}

sysctl "kernel.printk_ratelimit" {
  value = 5
  drift = "ignore"
}
