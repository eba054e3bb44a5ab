within 120 systemctl is-active --quiet nodegate-watch.service
systemctl show -P NRestarts kubelet.service | grep -qx 0 || die "kubelet was restarted"
rmmod br_netfilter # modprobe -r would unload the bridge with it, and cni0 would be gone
not loaded br_netfilter || die "br_netfilter cannot be unloaded: this step proves nothing"
within 120 loaded br_netfilter
[ "$(sysctl -n net.bridge.bridge-nf-call-iptables)" = 1 ] || die "bridge-nf-call-iptables is not 1"
