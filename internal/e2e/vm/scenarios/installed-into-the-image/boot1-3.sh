first_start
saw 1
within 120 settled
right_now
not started 2 || die "kubelet was restarted"
is_active=$(systemctl is-active kubelet.service) || die "kubelet is $is_active"
