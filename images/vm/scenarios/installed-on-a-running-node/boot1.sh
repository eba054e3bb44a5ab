. /opt/vm/service.sh
within 120 started 2
if (saw 1) 2>/dev/null; then die "a stock machine looks fit: nothing is proven by what follows"; fi
/opt/nodegate install

# stays: the newest start of the stand-in found what kubelet demands.
stays() {
	newest=$(ls /run/vm/kubelet | sort -n | tail -n 1)
	judged "$newest" && [ "$(cat "/run/vm/kubelet/$newest/verdict")" = runs ]
}
within 60 stays
saw "$newest"
make_service
asks $service_address || die "the Service does not answer"

/opt/nodegate uninstall
throughout 6 systemctl is-active --quiet kubelet.service
not started $((newest + 1)) || die "uninstall restarted kubelet"
