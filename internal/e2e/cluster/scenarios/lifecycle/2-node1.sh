proven /usr/local/bin/nodegate || die "the image's gate did not let kubelet start"
within 60 watched_by /usr/local/bin/nodegate v1.0.0
loaded br_netfilter || die "br_netfilter is not loaded"
kubelet_began
