systemctl stop kubelet.service nodegate-watch.service
break_it() {
	echo 'install br_netfilter /bin/false' >/etc/modprobe.d/rival.conf
	! loaded br_netfilter || rmmod br_netfilter
}
break_it
systemctl start --no-block kubelet.service
within 120 held
touch /etc/nodegate/disabled
within 120 kubelet_runs
not loaded br_netfilter || die "br_netfilter is loaded, so the test broke nothing"
echo "break glass: kubelet runs"

systemctl stop kubelet.service nodegate-watch.service
rm /etc/nodegate/disabled
/opt/nodegate install --policy /opt/release.hcl
break_it
systemctl start --no-block kubelet.service
within 180 kubelet_runs
not loaded br_netfilter || die "br_netfilter is loaded, so the test broke nothing"
journalctl -b --no-pager | grep -q 'nodegate: RELEASED' || die "the release is not in the journal"
