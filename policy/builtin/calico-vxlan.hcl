# Calico with VXLAN: tunnel vxlan.calico, routed veths without a bridge.

use "kubernetes" {}

module "vxlan" {
  reason  = "Felix needs it to create vxlan.calico."
  symptom = "calico-node logs: failed to create VXLAN tunnel device."
  ref     = "https://docs.tigera.io/calico/latest/getting-started/kubernetes/requirements"
}

link "calico" {
  match {
    kind = "vxlan"
    name = "vxlan*.calico"
  }
  offload  = { tx-checksum-ip-generic = false }
  severity = "warn"
  when     = !version_at_least(kernel.version, "5.7")
  reason   = "On kernels without the fix (5.7 and backports), a packet that is masqueraded twice leaves with a wrong checksum and is dropped."
  symptom  = "From the host, a Service with its endpoint on another node answers only after 1, 3 or 63 seconds."
  tradeoff = "Checksums are computed on the CPU, which costs throughput; one report measured a gain on 6.12."
  ref      = "https://github.com/projectcalico/calico/issues/11435"
}

check "vxlan.checksum" {}
check "link.mac-address-policy" {}
check "overlay.entries" {}
