within 120 systemctl is-active --quiet nodegate-watch.service
within 300 audit_says pass
within 200 sh -c 'ipvsadm -Ln -t 10.96.0.78:80 | grep -q Masq' # watch passed before there was an endpoint, too
ipvsadm -Ln
ip -brief address show kube-ipvs0

# A connection that stays while its endpoint goes.
mkfifo /run/hold
(sleep 900 >/run/hold) &
busybox nc 10.96.0.78 80 </run/hold >/dev/null 2>&1 &
within 20 sh -c 'ipvsadm -Ln -t 10.96.0.78:80 | grep -q "Masq *1 *1 "'
