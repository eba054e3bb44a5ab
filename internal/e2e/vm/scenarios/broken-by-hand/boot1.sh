first_start
saw 1
within 120 settled

# Nothing may repair the faults below.
systemctl stop nodegate-watch.service

# Set what would otherwise fail: the policy raises nf_conntrack_max but not the hash size, and the distribution's own .link file is a fault.
echo 65536 >/sys/module/nf_conntrack/parameters/hashsize
mkdir -p /etc/systemd/network
printf '[Match]\nOriginalName=*\n[Link]\nMACAddressPolicy=none\n' >/etc/systemd/network/10-cni.link

# Make kubelet demand its sysctls from its next start on.
mkdir -p /etc/systemd/system/kubelet.service.d
printf '[Service]\nExecStart=\nExecStart=/opt/vm/kubelet --protect-kernel-defaults=true\n' >/etc/systemd/system/kubelet.service.d/50-protect.conf
systemctl daemon-reload # or kubelet.unit warns

for stage in boot run; do
	expect "healthy, stage $stage" "" "$(complain $stage)"
	expect "healthy, stage $stage" "" "$(follow)"
	tail -n 1 /root/report.txt
done
passed=$(nodegate check --stage run --format junit | grep -c '<testcase .*></testcase>$')
echo "$passed checks pass at stage run"
[ "$passed" -ge 40 ] || die "only $passed checks pass"

flipped net.bridge.bridge-nf-call-iptables 0 1 ''
flipped net.bridge.bridge-nf-call-ip6tables 0 1 ''
flipped net.ipv4.ip_forward 0 1 'ip-forward.writers'
flipped net.netfilter.nf_conntrack_tcp_be_liberal 0 1 ''
flipped net.netfilter.nf_conntrack_max 65536 131072 ''
flipped vm.overcommit_memory 0 1 'kubelet.protect-kernel-defaults'
flipped vm.panic_on_oom 1 0 'kubelet.protect-kernel-defaults'
flipped kernel.panic 0 10 'kubelet.protect-kernel-defaults'
flipped kernel.panic_on_oops 0 1 'kubelet.protect-kernel-defaults'
flipped kernel.keys.root_maxkeys 200 1000000 'kubelet.protect-kernel-defaults'
flipped kernel.keys.root_maxbytes 20000 25000000 'kubelet.protect-kernel-defaults'
flipped fs.inotify.max_user_watches 8192 524288 'inotify.limits'
flipped fs.inotify.max_user_instances 128 8192 'inotify.limits'
flipped net.ipv4.vs.conntrack 0 1 'ipvs.settings'
flipped net.ipv4.vs.expire_nodest_conn 0 1 'ipvs.settings'
flipped net.ipv4.vs.expire_quiescent_template 0 1 'ipvs.settings'
flipped net.ipv4.conf.all.arp_ignore 0 1 'ipvs.settings'
flipped net.ipv4.conf.all.arp_announce 0 2 'ipvs.settings'

apply='nodegate apply >/dev/null'
broken both 'module.overlay' '' 'rmmod overlay' remedy
broken both 'module.vxlan' '' 'rmmod vxlan' remedy
broken both 'module.ip_vs_rr' '' 'rmmod ip_vs_rr' "$apply"
broken both 'module.ip_vs module.ip_vs_rr' 'sysctl.net.ipv4.vs.conntrack sysctl.net.ipv4.vs.expire_nodest_conn sysctl.net.ipv4.vs.expire_quiescent_template' \
	'rmmod ip_vs_rr ip_vs' "$apply"
broken both 'module.br_netfilter' 'sysctl.net.bridge.bridge-nf-call-ip6tables sysctl.net.bridge.bridge-nf-call-iptables' 'rmmod br_netfilter' "$apply"

broken run 'sysctl.who-wins' '' 'echo "kernel.panic = 0" >/etc/sysctl.d/99-zzz-rival.conf' 'rm /etc/sysctl.d/99-zzz-rival.conf'
broken run 'ip-forward.writers sysctl.who-wins' '' 'echo "net.ipv4.conf.all.forwarding = 0" >/etc/sysctl.d/99-zzz-rival.conf' 'rm /etc/sysctl.d/99-zzz-rival.conf'
broken run 'link.mac-address-policy' '' 'mv /etc/systemd/network/10-cni.link /root' 'mv /root/10-cni.link /etc/systemd/network'
broken run 'networkd.foreign-routes' '' 'systemctl start systemd-networkd.service' 'systemctl stop systemd-networkd.service systemd-networkd.socket'
broken run 'networkmanager.cni-links' '' 'systemd-run -q --unit=NetworkManager.service sleep infinity' 'systemctl stop NetworkManager.service'
broken run 'firewalld' '' 'printf "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n" >/etc/systemd/system/firewalld.service
	systemctl enable -q --now firewalld.service' remedy
broken run 'nm-cloud-setup' '' 'ip rule add priority 30200 from 10.9.9.9 table 30200' 'ip rule del priority 30200'
broken run 'nodeport.overlap' '' 'sysctl -qw net.ipv4.ip_local_port_range="20000 60999"' 'sysctl -qw net.ipv4.ip_local_port_range="32768 60999"'
broken run 'conntrack.hashsize' '' 'echo 1024 >/sys/module/nf_conntrack/parameters/hashsize' 'echo 65536 >/sys/module/nf_conntrack/parameters/hashsize'
broken run 'swap' '' 'mkdir -p /var/lib/kubelet; echo "kind: KubeletConfiguration" >/var/lib/kubelet/config.yaml
	dd if=/dev/zero of=/swap bs=1M count=8 status=none; chmod 600 /swap; mkswap -q /swap; swapon /swap' remedy
rm /swap /var/lib/kubelet/config.yaml

# A bridge with a Pod, and a tunnel on a network card.
pod='ip link add cni0 type bridge; ip link add vethpod type veth peer name ethpod; ip link set vethpod master cni0 up; ip link set cni0 up'
unpod='ip link del cni0; ip link del vethpod'
broken run 'rp-filter.effective' '' "$pod; sysctl -qw net.ipv4.conf.cni0.rp_filter=1" "$unpod"
broken both 'sysctl.net.bridge.bridge-nf-call-iptables' 'bridge.netfilter' "$pod; sysctl -qw net.bridge.bridge-nf-call-iptables=0; sysctl -qw net.ipv4.conf.cni0.rp_filter=0" \
	"$unpod; sysctl -qw net.bridge.bridge-nf-call-iptables=1"
broken run 'mtu.chain' '' 'ip link add nic0 type veth peer name nic1; ip link set nic1 up; ip link set nic0 up; ip addr add 10.9.8.1/24 dev nic0
	ip route add default via 10.9.8.2; ip link add flannel.1 mtu 1500 type vxlan id 1 dstport 8472; sysctl -qw net/ipv4/conf/flannel.1/rp_filter=0' 'ip link del flannel.1; ip link del nic0'
broken run 'neighbour.table' '' 'ip link add nic0 type veth peer name nic1; ip link set nic1 up; ip link set nic0 up
	for i in 1 2 3 4; do ip neigh add 10.9.9.$i lladdr 02:00:00:00:00:01 nud stale dev nic0; done; sysctl -qw net.ipv4.neigh.default.gc_thresh3=4' \
	'sysctl -qw net.ipv4.neigh.default.gc_thresh3=1024; ip link del nic0'

# The packet filter comes last, because its modules stay loaded.
broken run 'kubeproxy.postrouting? packetfilter.kernel-can' '' 'echo install xt_mark /bin/false >/etc/modprobe.d/no.conf; rmmod xt_mark 2>/dev/null || :; iptables-nft -t nat -N KUBE-SERVICES' \
	'rm /etc/modprobe.d/no.conf; iptables-nft -t nat -X KUBE-SERVICES'

# The rules that kube-proxy 1.30 writes for one Service.
cat >/root/proxy.rules <<'RULES'
*mangle
:KUBE-PROXY-CANARY - [0:0]
COMMIT
*filter
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-PROXY-CANARY - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SERVICES - [0:0]
-A INPUT -j KUBE-FIREWALL
-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS
-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
-A OUTPUT -j KUBE-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
*nat
:KUBE-MARK-MASQ - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-PROXY-CANARY - [0:0]
:KUBE-SEP-O7UXPAIOQA4W54LS - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-NPX46M4PTMTKRN6Y - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
-A KUBE-SEP-O7UXPAIOQA4W54LS -s 192.0.2.10/32 -m comment --comment "default/kubernetes:https" -j KUBE-MARK-MASQ
-A KUBE-SEP-O7UXPAIOQA4W54LS -p tcp -m comment --comment "default/kubernetes:https" -m tcp -j DNAT --to-destination 192.0.2.10:6443
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment "default/kubernetes:https cluster IP" -m tcp --dport 443 -j KUBE-SVC-NPX46M4PTMTKRN6Y
-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-SVC-NPX46M4PTMTKRN6Y ! -s 10.244.0.0/16 -d 10.96.0.1/32 -p tcp -m comment --comment "default/kubernetes:https cluster IP" -m tcp --dport 443 -j KUBE-MARK-MASQ
-A KUBE-SVC-NPX46M4PTMTKRN6Y -m comment --comment "default/kubernetes:https -> 192.0.2.10:6443" -j KUBE-SEP-O7UXPAIOQA4W54LS
COMMIT
RULES
proxy='iptables-nft-restore /root/proxy.rules'
$proxy
expect "kube-proxy's rules, stage run" "" "$(complain run)"
tail -n 1 /root/report.txt
broken run 'kubeproxy.postrouting' '' 'sed -e "/KUBE-POSTROUTING -m mark ! /d" -e "/KUBE-POSTROUTING -j MARK/d" \
	-e "s/requiring SNAT\" -j/requiring SNAT\" -m mark --mark 0x4000\/0x4000 -j/" /root/proxy.rules | iptables-nft-restore' "$proxy"
broken run 'iptables.bare-drop' '' 'iptables-nft -A KUBE-FIREWALL -j DROP' remedy
broken run 'iptables.backends kubeproxy.postrouting?' '' 'iptables-legacy -t nat -N KUBE-SVC-TCOU7JCQXEZGVUNU' 'iptables-legacy -t nat -X KUBE-SVC-TCOU7JCQXEZGVUNU'
liberal='sysctl -qw net.netfilter.nf_conntrack_tcp_be_liberal'
broken both 'sysctl.net.netfilter.nf_conntrack_tcp_be_liberal' 'conntrack.be-liberal-changed conntrack.invalid' "sed '/INVALID/d' /root/proxy.rules | iptables-nft-restore; $liberal=0" "$proxy; $liberal=1"

expect "mended, stage run" "" "$(complain run)"
no_mistakes
