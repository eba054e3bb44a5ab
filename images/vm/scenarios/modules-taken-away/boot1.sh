first_start
systemctl stop nodegate-watch.service # it would load them again
# unload takes out of the kernel what nobody uses.
unload() {
	for _ in 1 2 3 4 5 6 7 8; do
		lsmod | awk '$3 == 0 && /^(xt_|x_tables|ip6?t_|ip6?table_|nft_|nf_nat|nf_reject|nf_tables|nfnetlink)/ { print $1 }' >/root/unused
		[ -s /root/unused ] || return 0
		xargs rmmod </root/unused 2>/dev/null || :
	done
}
can() {
	unload
	nodegate check --stage run packetfilter.kernel-can >/root/can.txt || :
	grep -q "$1" /root/can.txt || die "$2: $(cat /root/can.txt)"
}
mkdir -p /etc/kubernetes/manifests
for mode in iptables nftables; do
	echo "spec: {containers: [{command: [kube-proxy, --proxy-mode=$mode]}]}" >/etc/kubernetes/manifests/kube-proxy.yaml
	can '^nodegate: pass' "$mode mode, whole"
	case $mode in
	iptables) modules='xt_comment xt_conntrack xt_statistic xt_recent xt_mark xt_MASQUERADE xt_nat xt_tcpudp xt_addrtype ipt_REJECT ip6t_REJECT' ;;
	nftables) modules='nf_tables nft_chain_nat nft_numgen nft_fib nft_fib_ipv4 nft_fib_ipv6 nft_ct nft_masq nft_nat nft_reject_ipv4 nft_reject_ipv6' ;;
	esac
	for module in $modules; do
		file=$(find "/lib/modules/$(uname -r)" -name "$module.ko*")
		unload
		mv "$file" /root/taken
		can "^fail.*cannot without.*$module" "$mode mode without $module"
		mv /root/taken "$file"
	done
	can '^nodegate: pass' "$mode mode, whole again"
done
