# The requirements of kubeadm's preflight checks, in addition to the kubernetes policy.

use "kubernetes" {}

variable "ipv6" {
  type        = bool
  default     = false
  description = "the cluster has IPv6 or dual-stack Pods"
}

sysctl "net.ipv6.conf.default.forwarding" {
  value    = 1
  when     = var.ipv6
  reason   = "kubeadm join refuses a node of an IPv6 cluster without it."
  symptom  = "kubeadm: [ERROR FileContent--proc-sys-net-ipv6-conf-default-forwarding]."
  tradeoff = "A forwarding interface ignores router advertisements unless accept_ra is 2."
  ref      = "https://kubernetes.io/docs/setup/production-environment/container-runtimes/"
}
