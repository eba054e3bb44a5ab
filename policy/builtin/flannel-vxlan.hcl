# flannel with its VXLAN backend: bridge cni0, tunnel flannel.1.

use "kubernetes" {}

module "vxlan" {
  reason  = "flanneld needs it to create flannel.1."
  symptom = "flanneld exits: operation not supported."
  ref     = "https://github.com/flannel-io/flannel/blob/master/Documentation/backends.md"
}

variable "flannel_checksum_fixed" {
  type        = string
  default     = "5.7"
  description = "The first kernel on which checksums of flannel.1 are left on. Some newer kernels lose packets too (flannel#2152)."
}

link "flannel" {
  match {
    kind = "vxlan"
    name = "flannel*"
  }
  offload  = { tx-checksum-ip-generic = false }
  severity = "warn"
  when     = !version_at_least(kernel.version, var.flannel_checksum_fixed)
  reason   = "On kernels without the fix (5.7 and backports), a packet that is masqueraded twice leaves with a wrong checksum and is dropped."
  symptom  = "From the host, a Service with its endpoint on another node answers only after 1, 3 or 63 seconds."
  tradeoff = "Checksums are computed on the CPU, which costs some throughput. Not needed on a fixed kernel or with kube-proxy 1.19 or later."
  ref      = "https://github.com/flannel-io/flannel/issues/1279"
}

check "vxlan.checksum" {}
check "link.mac-address-policy" {}
check "overlay.entries" {}
