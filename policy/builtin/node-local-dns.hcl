# NodeLocal DNS: a cache on every node, with an address of its own on a dummy link.

module "dummy" {
  reason  = "node-cache binds its address to a dummy link, nodelocaldns, which it creates."
  symptom = "node-local-dns restarts: operation not supported; where kubelet's clusterDNS is its address, no Pod of the node has DNS."
  ref     = "https://kubernetes.io/docs/tasks/administer-cluster/nodelocaldns/"
}
