first_start
systemctl stop nodegate-watch.service # watch would load them again
# unload: remove unused modules. Try repeatedly, because a namespace ends a moment after its last program.
ours='^(xt_|ipt_|ip6t_|ip6?table_|nft_|nf_nat|nf_reject|nf_tables)'
unload() {
	for _ in $(seq 30); do
		lsmod | awk -v ours="$ours" '$3 == 0 && $1 ~ ours { print $1 }' | xargs -r rmmod 2>/dev/null || :
		lsmod | awk -v ours="$ours" '$1 ~ ours' | grep . >/root/loaded || return 0
		sleep 0.2
	done
	die "still loaded: $(cat /root/loaded)"
}
can() {
	for _ in 1 2 3 4; do # on a busy machine the check may time out with unknown
		nodegate check --stage run packetfilter.kernel-can >/root/can.txt || :
		grep -q '^unknown' /root/can.txt || break
	done
	grep -q "$1" /root/can.txt || die "$2: $(cat /root/can.txt)"
}
mkdir -p /etc/kubernetes/manifests
for mode in iptables nftables; do
	echo "spec: {containers: [{command: [kube-proxy, --proxy-mode=$mode]}]}" >/etc/kubernetes/manifests/kube-proxy.yaml
	can '^nodegate: pass' "$mode mode, whole"
	case $mode in
	iptables)
		# iptables-nft writes some of these matches and targets without the module of that name.
		update-alternatives --set iptables /usr/sbin/iptables-legacy
		update-alternatives --set ip6tables /usr/sbin/ip6tables-legacy
		modules='xt_comment xt_conntrack xt_statistic xt_recent xt_mark xt_MASQUERADE xt_nat xt_tcpudp xt_addrtype ipt_REJECT ip6t_REJECT'
		;;
	nftables)
		modules='nf_tables nft_chain_nat nft_numgen nft_fib nft_fib_ipv4 nft_fib_ipv6 nft_ct nft_masq nft_nat nft_reject_ipv4 nft_reject_ipv6'
		;;
	esac
	can '^nodegate: pass' "$mode mode, whole"
	for module in $modules; do
		file=$(find "/lib/modules/$(uname -r)" -name "$module.ko*")
		unload
		mv "$file" /root/taken
		can "^fail.*unavailable modules:.*$module" "$mode mode without $module"
		mv /root/taken "$file"
	done
	can '^nodegate: pass' "$mode mode, whole again"
done

# Settings that need a real kernel: options of a module, a module that must not load, a parameter that its module brings, a number
# that the kernel rounds, and an attribute of /sys.
cat >/root/settings.hcl <<'P'
module "sunrpc" {
  options = { auth_max_cred_cachesize = 5000 }
}
module "mpls_router" {
  absent = true
}
sysctl "sunrpc.tcp_max_slot_table_entries" {
  value  = 128
  reason = "A test."
}
sysctl "net.netfilter.nf_conntrack_buckets" {
  min    = 100000
  reason = "The kernel stores 100352."
}
sysfs "kernel/mm/transparent_hugepage/enabled" {
  value  = "madvise"
  reason = "A test."
}
P
settings() { cat /proc/sys/net/netfilter/nf_conntrack_buckets /sys/kernel/mm/transparent_hugepage/enabled; }
echo always >/sys/kernel/mm/transparent_hugepage/enabled
settings >/root/before
nodegate lint --strict -p /root/settings.hcl || die "lint"
modprobe mpls_router
! nodegate check -p /root/settings.hcl module.mpls_router >/root/checked || die "a module that must not load is loaded"
rmmod mpls_router
nodegate install -p /root/settings.hcl
! modprobe mpls_router 2>/dev/null || die "modprobe loads a module that must not load"
nodegate plan -p /root/settings.hcl >/root/plan || die "plan: $(cat /root/plan)"
grep -q 'sysctl.sunrpc.tcp_max_slot_table_entries .*after module.sunrpc' /root/plan || die "plan: $(cat /root/plan)"
nodegate apply -p /root/settings.hcl >/root/applied || die "apply: $(cat /root/applied)"
[ "$(cat /sys/module/sunrpc/parameters/auth_max_cred_cachesize)" = 5000 ] || die "the module has no option"
[ "$(value sunrpc.tcp_max_slot_table_entries)" = 128 ] || die "the module's parameter is not set"
[ "$(value net.netfilter.nf_conntrack_buckets)" = 100352 ] || die "buckets: $(value net.netfilter.nf_conntrack_buckets)"
nodegate check -p /root/settings.hcl >/root/checked || die "check: $(cat /root/checked)"
nodegate plan -p /root/settings.hcl | grep "^no change" || die "a second apply would change something"
nodegate revert >/root/reverted || die "revert: $(cat /root/reverted)"
settings | diff /root/before - >&2 || die "revert did not restore the old values: $(cat /root/reverted)"
nodegate uninstall
modprobe mpls_router || die "uninstall left the rule of modprobe"
[ ! -e /etc/modprobe.d/99-zz-nodegate.conf ] || die "uninstall left the file of modprobe.d"
