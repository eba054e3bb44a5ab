proven /usr/bin/nodegate || die "kubelet was not let in by the gate of what was installed again"
kubelet_began
