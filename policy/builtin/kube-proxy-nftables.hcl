# kube-proxy in nftables mode: Linux 5.13 or later, nft 1.0.1 or later.

use "kubernetes" {}

module "nf_tables" {
  reason  = "kube-proxy writes its rules to nf_tables."
  symptom = "kube-proxy exits: nftables mode is not supported on this kernel."
  ref     = "https://kubernetes.io/docs/reference/networking/virtual-ips/"
}

module "nft_chain_nat" {
  reason  = "The nat chains of the table kube-proxy need it."
  symptom = "kube-proxy logs: Could not process rule: No such file or directory."
  ref     = "https://kubernetes.io/docs/reference/networking/virtual-ips/"
}
