trace=/sys/kernel/tracing/trace
# after SECONDS: when packets left by flannel.1 after that time since boot.
after() { sed -n 's/.* \([0-9.]*\): net_dev_start_xmit: dev=flannel\.1 .*/\1/p' $trace | awk -v since="$1" '$1 > since'; }
flows() { [ "$(after "$since" | wc -l)" -ge 5 ]; }

# proven WHAT: packets leave by the link that flanneld has made since, none of them with its checksum left out.
proven() {
	within 200 flows
	[ "$(sent ip_summed=3)" = 0 ] || die "$1: packets left flannel.1 with their checksum left out: $(grep -m 3 ip_summed=3 $trace)"
	set=$(journalctl -b --no-pager -o short-monotonic NODEGATE_EVENT=set NODEGATE_LINK=flannel.1 | sed -n 's/^\[ *\([0-9.]*\)\].*/\1/p' | tail -n 1)
	[ -n "$set" ] && [ "${set%.*}" -ge "${since%.*}" ] || die "$1: watch has not set flannel.1"
	first=$(after "$since" | head -n 1)
	echo "$1: flannel.1 set by $set s, first packet at $first s; of $(sent) packets none has its checksum left out"
	awk "BEGIN { exit !($set < $first) }" || die "$1: a packet left before"
	names link.overlay pass
	names overlay.entries pass
}

since=0
proven "after the boot"
! journalctl -b --no-pager -u flanneld.service | grep -q 'Failed to check br_netfilter' || die "flanneld ran without br_netfilter"

# A Pod that does not stop sending to the other node.
pod=$(pgrep -xf /pod | head -n 1)
to=$(ip route show dev flannel.1 | sed -n 's|^\([0-9.]*\)\.0/24 .*|\1.1|p')
nsenter --target "$pod" --net bash -c "while :; do echo x >/dev/udp/$to/9; sleep 0.01; done" 2>/dev/null &
sender=$!
trap 'kill $sender' EXIT

# gone: the link is deleted, and from now on only packets of another one count.
gone() {
	ip link del flannel.1
	since=$(cut -d' ' -f1 /proc/uptime)
}

systemctl stop flanneld.service
gone
systemctl start --no-block flanneld.service
proven "deleted while flanneld was away"

gone
within 60 made # by flanneld 0.28.10, but not the routes: the node reaches no other one
bare() { /opt/nodegate status | grep -q 'warn *overlay.entries .*flannel.1 was recreated without its routes'; }
within 120 bare
systemctl restart --no-block flanneld.service # as the remedy says
proven "deleted under flanneld, which was restarted"
within 120 not bare
