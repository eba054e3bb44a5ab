# This kernel runs without IPv6 and with cgroup v1.
first_start
within 120 settled
systemctl stop nodegate-watch.service
echo 65536 >/sys/module/nf_conntrack/parameters/hashsize
broken run 'cgroup.version' '' 'true' 'true'
broken run 'bridge.netfilter-ipv6 cgroup.version' '' 'ip link add cni0 type bridge; ip link add vethpod type veth peer name ethpod; ip link set vethpod master cni0 up
	ip link set cni0 up; sysctl -qw net.ipv4.conf.cni0.rp_filter=0' 'ip link del cni0; ip link del vethpod'
no_mistakes
