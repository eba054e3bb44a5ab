within 120 systemctl is-active --quiet nodegate-watch.service
within 300 audit_says pass
within 200 sh -c 'ipvsadm -Ln -t 10.96.0.78:80 | grep -q Masq' # watch also passed before the Service had an endpoint
ipvsadm -Ln
ip -brief address show kube-ipvs0

# This connection stays open while its endpoint is removed.
mkfifo /run/hold
(sleep 900 >/run/hold) &
busybox nc 10.96.0.78 80 </run/hold >/dev/null 2>&1 &
within 20 sh -c 'ipvsadm -Ln -t 10.96.0.78:80 | grep -q "Masq *1 *1 "'
