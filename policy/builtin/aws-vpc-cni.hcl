# The Amazon VPC CNI: Pods use addresses of secondary network interfaces.

use "kubernetes" {}

link "primary-eni" {
  match {
    driver        = "ena"
    default_route = true
  }
  sysctl  = { "net.ipv4.conf.*.rp_filter" = 2 }
  reason  = "Replies to a Pod on a secondary interface arrive on the primary one, and strict filtering drops them."
  symptom = "NodePorts time out for Pods on secondary interfaces."
  ref     = "https://github.com/aws/amazon-vpc-cni-k8s/blob/master/docs/troubleshooting.md"
}

# udev must not change the MAC address of the CNI's eni* interfaces.
check "link.mac-address-policy" {}
