# The server does not run now.
first_start
saw 1
within 120 settled
right_now
not started 2 || die "kubelet was restarted"
within 60 all_active nodegate-fetch nodegate-apply nodegate-watch kubelet
