mtus() { cat /sys/class/net/eth0/mtu /sys/class/net/flannel.1/mtu /sys/class/net/cni0/mtu | xargs; }
[ "$(mtus)" = "1500 1450 1450" ] || die "the MTUs of eth0, flannel.1 and cni0 are $(mtus)"
names mtu.chain pass
ip link set cni0 mtu 1500
names mtu.chain warn 'cni0 1500 > 1450'
ip link set cni0 mtu 1450
ip link set eth0 mtu 1400
names mtu.chain warn 'flannel.1 1450 > 1350'
ip link set eth0 mtu 1500
names mtu.chain pass

names kubeproxy.postrouting pass
names vxlan.checksum pass
systemctl stop kube-proxy.service
iptables -t nat -F KUBE-POSTROUTING
iptables -t nat -A KUBE-POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE --random-fully # as kube-proxy 1.16.0 wrote it
names kubeproxy.postrouting warn double-snat
names vxlan.checksum pass # the kernel has the fix
systemctl start kube-proxy.service
again() { (names kubeproxy.postrouting pass) 2>/dev/null; }
within 120 again
