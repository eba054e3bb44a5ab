within 120 systemctl is-active --quiet nodegate-watch.service
systemctl show -P NRestarts kubelet.service | grep -qx 0 || die "kubelet was restarted"
within 120 grep -q '^exit 0$' /run/statuses
systemctl stop statuses.service
not grep -B20 '^exit 1$' /run/statuses || die "status says fail on a healthy boot"
rmmod br_netfilter # modprobe -r would also unload bridge and so delete cni0
not loaded br_netfilter || die "br_netfilter cannot be unloaded, so this step proves nothing"
within 120 loaded br_netfilter
[ "$(sysctl -n net.bridge.bridge-nf-call-iptables)" = 1 ] || die "bridge-nf-call-iptables is not 1"
