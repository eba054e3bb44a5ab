watch=nodegate-watch.service
rounds() { nodegate status --format json | sed -n 's/^ *"rounds": \([0-9]*\).*/\1/p'; }
more() { [ "$(rounds)" -gt "$1" ]; }
round() { # wait for a whole round that begins now; the first one may already have begun
	for _ in 1 2; do
		before=$(rounds)
		systemctl kill -s HUP --kill-who=main $watch
		within 90 more "$before"
	done
}
verdict() { nodegate status --format json | tr -d '\n' | grep '"writers.networkd-damage", *"verdict": *"'"$1" >/dev/null; }
made() {
	ip route add 10.9.1.0/24 dev overlay0
	ip route add 10.9.2.0/24 dev overlay0
	ip rule add to 10.9.9.9 lookup 10 priority 512
}
first_start
within 120 systemctl is-active --quiet $watch
within 120 nodegate status
ip link add overlay0 type dummy
systemctl start systemd-networkd
within 60 sh -c 'ip address show dev overlay0 | grep -q 10.9.0.1'
made
round
round
verdict pass || die "it does not pass at first: $(nodegate status)"
systemctl restart systemd-networkd
within 60 not sh -c 'ip route show dev overlay0 | grep -q 10.9.1.0'
round
verdict 'fail".*10.9.1.0/24 dev overlay0' || die "it does not name the routes: $(nodegate status)"
ip rule del priority 512 2>/dev/null || :
made
round
verdict pass || die "it does not pass at the end: $(nodegate status)"
