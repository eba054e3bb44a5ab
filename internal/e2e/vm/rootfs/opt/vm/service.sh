# Two pods of this node on a bridge made by the real CNI plugin, and a Service address that leads from one to the other,
# by the rule kube-proxy would write. Sourced after lib.sh.

service_address=100.67.30.133
answer="the pod of this node"

# pod NAME: a network namespace on cni0; prints its address.
pod() {
	ip netns add "$1"
	CNI_COMMAND=ADD CNI_CONTAINERID=$1 CNI_NETNS=/run/netns/$1 CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni \
		/usr/lib/cni/bridge >/run/vm/cni-"$1" <<-E
		{"cniVersion": "0.4.0", "name": "pods", "type": "bridge", "bridge": "cni0", "isGateway": true,
		 "ipam": {"type": "host-local", "dataDir": "/run/vm/ipam", "subnet": "100.96.5.0/24", "routes": [{"dst": "0.0.0.0/0"}]}}
	E
	ip -n "$1" -4 -o address show dev eth0 | sed -n 's/.* inet \([0-9.]*\).*/\1/p'
}

# make_service: the pods "client" and "server", the server listening, the Service leading to it. Sets $server.
make_service() {
	mkdir -p /run/vm/www
	echo "$answer" >/run/vm/www/index.html
	pod client >/dev/null
	server=$(pod server)
	ip netns exec server busybox httpd -f -p 80 -h /run/vm/www >/dev/null 2>&1 &
	iptables -t nat -A PREROUTING -d $service_address/32 -p tcp --dport 80 -j DNAT --to-destination "$server:80"
	# The direct way must work, or the Service's failure would prove nothing.
	within 20 asks "$server"
	[ "$(value net.ipv4.ip_forward)" = 1 ] || die "the CNI plugin did not switch forwarding on"
}

# asks ADDRESS: the client gets the server's answer from there within 5 seconds.
asks() { [ "$(timeout 5 ip netns exec client busybox wget -q -O - "http://$1/" 2>/run/vm/wget)" = "$answer" ]; }

# silent ADDRESS: the client's connection times out: no answer, no refusal.
silent() {
	code=0
	timeout 5 ip netns exec client busybox wget -q -O - "http://$1/" >/run/vm/wget 2>&1 || code=$?
	[ $code = 124 ]
}
