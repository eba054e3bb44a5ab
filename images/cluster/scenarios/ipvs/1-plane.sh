within 400 ready node1
for pod in a b c d; do run $pod node1 server; done
run slow node1
kubectl apply -f - <<-E
{"apiVersion": "v1", "kind": "List", "items": [
 {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "server"}, "spec": {"type": "NodePort", "clusterIP": "10.96.0.77",
  "selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080, "nodePort": 30080}], "externalIPs": ["203.0.113.77"]}},
 {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "slow"}, "spec": {"clusterIP": "10.96.0.78", "selector": {"app": "slow"},
  "sessionAffinity": "ClientIP", "ports": [{"port": 80, "targetPort": 8080}]}},
 {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "moving"}, "spec": {"clusterIP": "10.96.0.79", "ports": [{"port": 80}]}}]}
E
for pod in a b c d slow; do within 200 running $pod; done

# Endpoints of one Service that change all the time, and another Service that comes and goes, until step 5.
move() {
	i=0
	while [ $i -lt 2000 ] && ! kubectl get configmap enough; do
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
