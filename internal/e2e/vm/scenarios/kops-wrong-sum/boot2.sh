. /opt/vm/nodeup.sh
within 120 held 1
serve
within 60 started 1
saw 1
not test -e /root/wrong-one-ran || die "the changed binary was run"
# Break-glass works without the binary as well.
rm /usr/local/bin/nodegate
touch /etc/nodegate/disabled
systemctl restart --no-block kubelet
within 60 started 2
