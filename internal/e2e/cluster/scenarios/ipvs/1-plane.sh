within 400 ready node1
for pod in a b c d; do run $pod node1 server; done
run slow node1
kubectl apply -f - <<-E
{"apiVersion": "v1", "kind": "List", "items": [
 {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "server"}, "spec": {"type": "NodePort", "clusterIP": "10.96.0.77",
  "selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080, "nodePort": 30080}], "externalIPs": ["203.0.113.77"]}},
 {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "slow"}, "spec": {"clusterIP": "10.96.0.78", "selector": {"app": "slow"},
  "sessionAffinity": "ClientIP", "ports": [{"port": 80, "targetPort": 8080}]}},
 {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "balanced"}, "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.80",
  "allocateLoadBalancerNodePorts": false, "selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080}],
  "loadBalancerSourceRanges": ["10.0.0.0/8", "172.16.0.0/12"]}},
 {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "moving"}, "spec": {"clusterIP": "10.96.0.79", "ports": [{"port": 80}]}}]}
E
kubectl patch service balanced --subresource=status --type=merge -p '{"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.80", "ipMode": "VIP"}]}}}'
for pod in a b c d slow; do within 200 running $pod; done
