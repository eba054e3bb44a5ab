. /opt/vm/nodeup.sh
[ "$(getenforce)" = Enforcing ] || die "SELinux is $(getenforce)"
watch=nodegate-watch.service
# passes: every check of a running node passes. On a busy machine it may time out.
passes() { nodegate check --stage run >/run/vm/check 2>&1; }

# denied: print the denials of this boot that are neither Debian's own nor about a program that prints to the agent's file.
denied() {
	journalctl -b --no-pager -o cat _TRANSPORT=kernel _TRANSPORT=audit | grep 'avc: *denied' |
		grep -vE 'comm="(systemd-tmpfile|systemd-udevd|\(udev-worker\)|agetty|udevadm)"|path="/run/vm-agent'
}
# mislabelled: print the files of nodegate whose label differs from the policy's. restorecon may write to a pipe, but not to a file below /run.
mislabelled() {
	restorecon -nvR /usr/local /usr/bin/nodegate /usr/lib/systemd/system/nodegate* /etc/nodegate /etc/systemd /etc/modules-load.d /etc/sysctl.d \
		/var/lib/nodegate 2>&1 | grep -v 'No such file'
}
# clean WHEN: nothing was denied, and no label is wrong.
clean() {
	within 60 settled
	not denied >&2 || die "$1: denied"
	not mislabelled >&2 || die "$1: wrong labels"
	echo "$(uptime_s): $1: no denial, no wrong label"
}
# works N: kubelet's Nth start found the node in order, and watch repairs it.
works() {
	within 120 started "$1"
	saw "$1"
	within 60 systemctl is-active --quiet $watch
	rmmod br_netfilter
	sysctl -qw net.ipv4.ip_forward=0
	systemctl kill -s HUP --kill-who=main $watch
	within 60 loaded br_netfilter
	within 60 is net.ipv4.ip_forward 1
	within 60 is net.bridge.bridge-nf-call-iptables 1
	echo "watch runs as $(cat /proc/"$(systemctl show --value -p MainPID $watch)"/attr/current)"
	within 120 passes
}

first_start
works 1
nodegate snapshot >/run/vm/snapshot
clean "installed into the image"
nodegate uninstall
systemctl restart kubelet.service
within 60 started 2

# A file that the installation replaces.
mine=/etc/sysctl.d/99-zz-nodegate.conf
echo 'net.ipv4.ip_forward = 0' >$mine
chmod 640 $mine
setfacl -m u:daemon:rw $mine
setfattr -n user.note -v kept $mine
chcon -t net_conf_t $mine
attributes() { getfacl -cp $mine && getfattr -dm user.note $mine && stat -c %C $mine; }
attributes >/run/vm/before
runcon unconfined_u:unconfined_r:unconfined_t:s0 sh -c '/opt/nodegate install --policy /opt/policy.hcl --start'
grep -q 'ip_forward = 1' $mine || die "$mine was not replaced"
attributes >/run/vm/during
for kept in user:daemon user.note net_conf_t; do grep -q $kept /run/vm/during || die "the replaced file lost $kept: $(cat /run/vm/during)"; done
mislabelled | grep -q $mine || die "a wrong label would not be found"
restorecon $mine
systemctl restart kubelet.service
works 3
clean "installed on the running machine"
chcon -t net_conf_t $mine
nodegate uninstall
attributes >/run/vm/after
diff /run/vm/before /run/vm/after >&2 || die "uninstall did not restore the file's attributes"
rm $mine

dpkg -i /opt/package/*.deb 2>&1 | cat # like restorecon
nodegate install --policy /opt/policy.hcl --start
systemctl restart kubelet.service
works 4
clean "installed by the package"
dpkg -r nodegate 2>&1 | cat
not test -e /usr/bin/nodegate || die "the package was not removed"

serve
nodeup hooks
within 120 started 5
works 5
[ "$(systemctl is-active nodegate-fetch.service)" = active ] || die "nodegate-fetch.service is not active"
not denied >&2 || die "fetched: denied"
wrong=$(restorecon -nv /usr/local/bin/nodegate) # the stand-in for nodeup has made the other files
[ -z "$wrong" ] || die "fetched: $wrong"
