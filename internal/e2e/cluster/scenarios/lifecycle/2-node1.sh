proven /usr/local/bin/nodegate || die "kubelet was not let in by the gate of the image"
within 60 watched_by /usr/local/bin/nodegate v1.0.0
loaded br_netfilter || die "br_netfilter is not loaded"
kubelet_began
