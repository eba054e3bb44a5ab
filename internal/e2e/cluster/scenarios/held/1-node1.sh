within 240 held
sleep 15
held || die "kubelet is no longer held"
grep -q module.br_netfilter /run/nodegate/report.json || die "the report does not name br_netfilter"
