use "flannel-vxlan" {}

link "overlay" {
  match {
    kind = "vxlan"
    name = "flannel*"
  }
  offload = { tx-checksum-ip-generic = false }
  reason  = "What the scenario asks for, so that it can be seen."
}
