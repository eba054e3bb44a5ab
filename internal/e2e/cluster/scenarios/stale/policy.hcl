use "kubernetes" {}

audit {
  kubeconfig = "/etc/kubernetes/proxy.kubeconfig"
}
