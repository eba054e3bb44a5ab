# vSphere: VXLAN over a vmxnet3 interface. Use it beside the policy of your CNI.

link "vmxnet3" {
  match { driver = "vmxnet3" }
  offload = {
    tx-udp_tnl-segmentation      = false
    tx-udp_tnl-csum-segmentation = false
  }
  reason   = "ESXi drops VXLAN packets whose segmentation or checksum Linux leaves to vmxnet3, unless the port is the one that ESXi expects."
  symptom  = "Between nodes only ICMP works: TCP and UDP of Pods time out."
  tradeoff = "The CPU segments and checksums tunnelled packets, as it did before the driver had these offloads."
  ref      = "https://github.com/projectcalico/calico/issues/4727"
}

check "vmxnet3.tunnel-offload" {}
