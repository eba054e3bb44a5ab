# Antrea: Open vSwitch in the kernel, and the tunnel to other nodes.

use "kubernetes" {}

module "openvswitch" {
  reason  = "Antrea's agent forwards all Pods' packets with the kernel's Open vSwitch datapath."
  symptom = "antrea-agent restarts: the container antrea-ovs cannot load openvswitch; no Pod of the node starts."
  ref     = "https://antrea.io/docs/main/docs/getting-started/"
}

module "geneve" {
  reason  = "Antrea's default tunnel between nodes."
  symptom = "Pods reach Pods of their own node only."
  ref     = "https://antrea.io/docs/main/docs/design/architecture/"
}
