not joined node1 || die "the API knows a node whose kubelet is held"
