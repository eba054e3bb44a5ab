first_start
saw 1
[ ! -e /usr/local/bin/nodegate ] || die "a binary outside the extension exists"
nodegate version
systemd-sysext unmerge
[ ! -e /usr/bin/nodegate ] || die "the extension is still merged"
systemctl restart --no-block kubelet.service
throughout 10 not started 2
systemd-sysext merge
within 60 started 2
saw 2
right_now
