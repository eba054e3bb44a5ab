# Make these changes while kube-proxy is stopped, because it would revert them.
systemctl kill -s STOP kube-proxy.service
real=$(ipvsadm -Ln -t 10.96.0.77:80 | sed -n 's/.*-> \([0-9.]*:8080\) .*/\1/p' | head -n 1)
ipvsadm -d -t 10.96.0.77:80 -r "$real"
audit_accuses default/server "$real: they are in the API, and not among the 2"
ipvsadm -a -t 10.96.0.77:80 -r "$real" -m -w 1
ip address del 10.96.0.77/32 dev kube-ipvs0
audit_accuses default/server '10.96.0.77 is not on kube-ipvs0'
ip address add 10.96.0.77/32 dev kube-ipvs0
ipvsadm -A -t 10.96.0.79:81 -s rr
audit_accuses 10.96.0.79:81/tcp 'still takes what is sent to 10.96.0.79:81'
ipset list KUBE-LOAD-BALANCER-SOURCE-CIDR
ipset del KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.80,tcp:80,10.0.0.0/8
audit_accuses default/balanced 'this node lets 172.16.0.0/12 use'
ipset add KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.80,tcp:80,10.0.0.0/8
ipset del KUBE-LOAD-BALANCER-FW 203.0.113.80,tcp:80
audit_accuses default/balanced 'this node lets anybody use'
systemctl kill -s CONT kube-proxy.service
within 300 audit_passes
