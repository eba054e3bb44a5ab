trace=/sys/kernel/tracing/trace
# after SECONDS: print the times of packets that left through flannel.1 later than SECONDS after boot.
after() { sed -n 's/.* \([0-9.]*\): net_dev_start_xmit: dev=flannel\.1 .*/\1/p' $trace | awk -v since="$1" '$1 > since'; }
flows() { [ "$(after "$since" | wc -l)" -ge 5 ]; }

# proven WHAT: packets leave through the new flannel.1, and all of them have a checksum.
proven() {
	within 200 flows
	[ "$(sent ip_summed=3)" = 0 ] || die "$1: packets left through flannel.1 without a checksum: $(grep -m 3 ip_summed=3 $trace)"
	set=$(journalctl -b --no-pager -o short-monotonic NODEGATE_EVENT=set NODEGATE_LINK=flannel.1 | sed -n 's/^\[ *\([0-9.]*\)\].*/\1/p' | tail -n 1)
	[ -n "$set" ] && [ "${set%.*}" -ge "${since%.*}" ] || die "$1: watch has not set flannel.1"
	first=$(after "$since" | head -n 1)
	echo "$1: flannel.1 set by $set s, first packet at $first s; of $(sent) packets none has its checksum left out"
	awk "BEGIN { exit !($set < $first) }" || die "$1: a packet left before that"
	names link.overlay pass
	names overlay.entries pass
}

since=0
proven "after the boot"
! journalctl -b --no-pager -u flanneld.service | grep -q 'Failed to check br_netfilter' || die "flanneld ran without br_netfilter"

# This Pod keeps sending to the other node.
pod=$(pgrep -xf /pod | head -n 1)
to=$(ip route show dev flannel.1 | sed -n 's|^\([0-9.]*\)\.0/24 .*|\1.1|p')
nsenter --target "$pod" --net bash -c "while :; do echo x >/dev/udp/$to/9; sleep 0.01; done" 2>/dev/null &
sender=$!
trap 'kill $sender' EXIT

# gone: delete the link; from now on only packets of the next one count.
gone() {
	ip link del flannel.1
	since=$(cut -d' ' -f1 /proc/uptime)
}

systemctl stop flanneld.service
gone
systemctl start --no-block flanneld.service
proven "deleted while flanneld was away"

gone
within 60 made # flanneld 0.28.10 makes the link again but not the routes, so the node cannot reach the other one
bare() { /opt/nodegate status | grep -q 'warn *overlay.entries .*flannel.1 was recreated without its routes'; }
within 120 bare
systemctl restart --no-block flanneld.service # the remedy of the check
proven "deleted under flanneld, which was restarted"
within 120 not bare
