proven /usr/local/bin/nodegate || die "the gate did not let kubelet start"
kubelet_began
