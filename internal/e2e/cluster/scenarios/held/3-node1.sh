rm /etc/modprobe.d/rival.conf
within 120 kubelet_runs
loaded br_netfilter || die "kubelet runs without br_netfilter"
