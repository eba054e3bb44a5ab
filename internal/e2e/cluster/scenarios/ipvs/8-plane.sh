# Until the end, keep changing the endpoints of one Service, and keep creating and deleting another Service.
move() {
	i=0
	while [ $i -lt 2000 ]; do
		i=$((i + 1))
		list=
		for k in 1 2 3 4; do
			ready=true
			[ $(((i + k) % 3)) != 0 ] || ready=false
			list="$list, {\"addresses\": [\"198.51.100.$(((i * 7 + k * 13) % 40 + 1))\"], \"conditions\": {\"ready\": $ready}}"
		done
		kubectl apply -f - <<-E
		{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "moving-1", "labels": {"kubernetes.io/service-name": "moving"}},
		 "addressType": "IPv4", "ports": [{"name": "", "port": 80, "protocol": "TCP"}], "endpoints": [${list#, }]}
		E
		case $((i % 8)) in
		0) kubectl create service nodeport coming --tcp=80:80 --node-port=30081 ;;
		4) kubectl delete --wait=false service coming ;;
		esac
	done
}
(set +e; move) >/dev/null 2>&1 &
