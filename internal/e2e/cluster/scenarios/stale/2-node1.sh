within 120 systemctl is-active --quiet nodegate-watch.service
within 300 audit_says pass
[ "$(systemctl show -P CapabilityBoundingSet nodegate-watch.service)" = 'cap_net_admin cap_net_raw cap_sys_module' ] || die "watch is not in its sandbox"

# Only kube-proxy stops receiving data from the API, as with a dead connection that was never closed.
nft -f - <<E
table inet cut {
	chain output { type filter hook output priority 0; socket cgroupv2 level 2 "system.slice/kube-proxy.service" tcp dport 6443 counter drop; }
	chain input { type filter hook input priority 0; socket cgroupv2 level 2 "system.slice/kube-proxy.service" tcp sport 6443 counter drop; }
}
E
