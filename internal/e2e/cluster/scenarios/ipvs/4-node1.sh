within 120 sh -c 'ipvsadm -Ln -t 10.96.0.78:80 | grep -q "Masq *0 *1 "'
/opt/nodegate audit --kubeconfig /etc/kubernetes/proxy.kubeconfig --node node1 --timeout 3m || die "audit reports a draining endpoint"
ipvsadm -Ln -t 10.96.0.78:80

# Only kube-proxy stops receiving data from the API, as with a dead connection that was never closed.
nft -f - <<N
table inet cut {
	chain output { type filter hook output priority 0; socket cgroupv2 level 2 "system.slice/kube-proxy.service" tcp dport 6443 counter drop; }
	chain input { type filter hook input priority 0; socket cgroupv2 level 2 "system.slice/kube-proxy.service" tcp sport 6443 counter drop; }
}
N
