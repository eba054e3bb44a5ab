use "kubernetes" {}
use "kube-proxy-ipvs" {}

audit {
  kubeconfig = "/etc/kubernetes/proxy.kubeconfig"
}
