first_start
saw 1
within 120 settled
systemctl stop nodegate-watch.service # its next round would correct the sysctl
sysctl -qw net.ipv4.ip_forward=0
systemctl --no-block restart kubelet
within 60 held 2
throughout 30 held 2
reported net.ipv4.ip_forward
is net.ipv4.ip_forward 0 || die "it was repaired"
sysctl -qw net.ipv4.ip_forward=1
within 60 started 2
saw 2
