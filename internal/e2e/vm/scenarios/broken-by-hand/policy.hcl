# All checks that one node can pass.
use "kubernetes" {}
use "kube-proxy-iptables" {}
use "kube-proxy-ipvs" {}
use "flannel-vxlan" {}
use "counters" {}

check "inotify.limits" {}
check "kubelet.protect-kernel-defaults" {}

override "links.default-route" {
  when = false # the machine has no network
}
