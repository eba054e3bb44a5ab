proven /usr/local/bin/nodegate || die "kubelet was not let in by the gate"
kubelet_began
