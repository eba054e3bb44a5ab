[ -z "$(systemctl show -P ExecStartPre kubelet.service)" ] || die "kubelet has a gate"
not loaded br_netfilter || die "br_netfilter is loaded, so uninstall left something"
[ ! -e /run/nodegate ] || die "nodegate has run"
kubelet_began
