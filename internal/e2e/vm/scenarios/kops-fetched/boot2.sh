# The server does not run now.
first_start
saw 1
within 120 settled
right_now
not started 2 || die "kubelet was restarted"
is_active=$(systemctl is-active nodegate-fetch nodegate-apply nodegate-watch kubelet | tr '\n' ' ')
[ "$is_active" = "active active active active " ] || die "fetch, apply, watch and kubelet are $is_active"
