# Makes two Pods of this node on a bridge of the real CNI bridge plugin, and a Service address that leads from one to the other with
# the rule that kube-proxy would write. Sourced after lib.sh.

service_address=100.67.30.133
answer="the pod of this node"

# pod NAME: make a network namespace on cni0 and print its address.
pod() {
	ip netns add "$1"
	CNI_COMMAND=ADD CNI_CONTAINERID=$1 CNI_NETNS=/run/netns/$1 CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni \
		/usr/lib/cni/bridge >/run/vm/cni-"$1" <<-E
		{"cniVersion": "0.4.0", "name": "pods", "type": "bridge", "bridge": "cni0", "isGateway": true,
		 "ipam": {"type": "host-local", "dataDir": "/run/vm/ipam", "subnet": "100.96.5.0/24", "routes": [{"dst": "0.0.0.0/0"}]}}
	E
	ip -n "$1" -4 -o address show dev eth0 | sed -n 's/.* inet \([0-9.]*\).*/\1/p'
}

# make_service: make the Pods "client" and "server", start the server, and make the Service. Sets $server.
make_service() {
	mkdir -p /run/vm/www
	echo "$answer" >/run/vm/www/index.html
	pod client >/dev/null
	server=$(pod server)
	ip netns exec server busybox httpd -f -p 80 -h /run/vm/www >/dev/null 2>&1 &
	iptables -t nat -A PREROUTING -d $service_address/32 -p tcp --dport 80 -j DNAT --to-destination "$server:80"
	# The direct connection must work, or the Service's failure would prove nothing.
	within 20 asks "$server"
	[ "$(value net.ipv4.ip_forward)" = 1 ] || die "the CNI plugin did not switch forwarding on"
}

# asks ADDRESS: the client gets the server's answer from ADDRESS within 5 seconds.
asks() { [ "$(timeout 5 ip netns exec client busybox wget -q -O - "http://$1/" 2>/run/vm/wget)" = "$answer" ]; }

# silent ADDRESS: the client's connection times out, with neither answer nor refusal.
silent() {
	code=0
	timeout 5 ip netns exec client busybox wget -q -O - "http://$1/" >/run/vm/wget 2>&1 || code=$?
	[ $code = 124 ]
}
