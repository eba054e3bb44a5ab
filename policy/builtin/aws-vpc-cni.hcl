# The Amazon VPC CNI: Pods on addresses of secondary network interfaces.

use "kubernetes" {}

link "primary-eni" {
  match {
    driver        = "ena"
    default_route = true
  }
  sysctl  = { "net.ipv4.conf.*.rp_filter" = 2 }
  reason  = "Traffic of a Pod on a secondary interface comes back by the primary one: strict filtering drops it."
  symptom = "NodePorts time out for Pods on secondary interfaces."
  ref     = "https://github.com/aws/amazon-vpc-cni-k8s/blob/master/docs/troubleshooting.md"
}
