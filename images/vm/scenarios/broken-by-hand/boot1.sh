first_start
saw 1
within 120 settled
nodegate check --stage run >/root/healthy.txt || { cat /root/healthy.txt >&2; die "a healthy node does not hold"; }
not grep -E '^(FAIL|UNKNOWN|warn)' /root/healthy.txt || die "a healthy node complains"
tail -n 1 /root/healthy.txt
made=$(nodegate check --stage run --format tap | sed -n 's/^1\.\.//p')
echo "$made checks at stage run"
[ "$made" -gt 40 ] || die "only $made checks"

# named CHECK: of all checks, this one alone fails or warns.
named() {
	nodegate check --stage run >/root/report.txt || :
	[ "$(sed -nE 's/^(FAIL|UNKNOWN|warn) +([^ ]+).*/\2/p' /root/report.txt)" = "$1" ] || { cat /root/report.txt >&2; die "not named, or not alone: $1"; }
	echo "$(uptime_s): $1: $(grep -E "^(FAIL|warn) +$1 " /root/report.txt)"
}

sysctl -qw net.ipv4.ip_local_port_range="20000 60999"
named nodeport.overlap
sysctl -qw net.ipv4.ip_local_port_range="32768 60999"

sysctl -qw net.netfilter.nf_conntrack_tcp_be_liberal=0
named sysctl.net.netfilter.nf_conntrack_tcp_be_liberal
sysctl -qw net.netfilter.nf_conntrack_tcp_be_liberal=1

echo 'kernel.panic = 0' >/etc/sysctl.d/99-zzz-rival.conf
named sysctl.who-wins
rm /etc/sysctl.d/99-zzz-rival.conf

sysctl -qw net.ipv4.conf.all.route_localnet=1
named route-localnet.martian
sysctl -qw net.ipv4.conf.all.route_localnet=0

iptables-nft -N KUBE-FIREWALL
iptables-nft -A KUBE-FIREWALL -j DROP
named iptables.bare-drop
iptables-nft -F KUBE-FIREWALL
iptables-nft -X KUBE-FIREWALL

systemctl start systemd-networkd.service
named networkd.foreign-routes
systemctl stop systemd-networkd.service systemd-networkd.socket

ip link add cni0 type bridge
ip link add vethpod type veth peer name ethpod
ip link set vethpod master cni0 up
ip link set cni0 up
sysctl -qw net.ipv4.conf.cni0.rp_filter=1
named rp-filter.effective
sysctl -qw net.ipv4.conf.cni0.rp_filter=0
named_alone=$(nodegate check --stage run | grep -cE '^(FAIL|UNKNOWN|warn)' || :)
[ "$named_alone" = 0 ] || { nodegate check --stage run >&2 || :; die "a repaired node complains"; }
ip link del cni0
ip link del vethpod
