. /opt/vm/nodeup.sh
within 120 settled
not loaded br_netfilter || die "br_netfilter is loaded on a stock machine, so the rest would prove nothing"
nodeup hooks
within 60 held 1
throughout 10 held 1
wrote_reason() { journalctl -b --no-pager -u nodegate-fetch | grep -q 'could not fetch http://127.0.0.1:8080/nodegate'; }
within 60 wrote_reason
serve
within 60 started 1
saw 1
# The gate needs only the binary, so kubelet may start before the fetching script starts apply and watch.
within 60 all_active nodegate-fetch nodegate-apply nodegate-watch
within 60 settled
