. /opt/vm/nodeup.sh
within 120 settled
not loaded br_netfilter || die "br_netfilter is loaded on a stock machine, so the rest would prove nothing"
nodeup hooks
within 60 held 1
throughout 10 held 1
journalctl -b --no-pager -u nodegate-fetch | grep -q 'could not fetch http://127.0.0.1:8080/nodegate' || die "the journal does not contain the reason"
serve
within 60 started 1
saw 1
within 60 settled
is_active=$(systemctl is-active nodegate-fetch nodegate-apply nodegate-watch | tr '\n' ' ')
[ "$is_active" = "active active active " ] || die "fetch, apply and watch are $is_active"
