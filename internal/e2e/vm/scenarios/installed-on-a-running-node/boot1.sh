. /opt/vm/service.sh
within 120 started 2
if (saw 1) 2>/dev/null; then die "a stock machine already passes, so the rest would prove nothing"; fi
printf 'use "kubernetes" {}\npublish {}\n' >/root/policy.hcl
/opt/nodegate install --policy /root/policy.hcl
systemctl start nodegate-watch.service # install alone does not start it

# stays: at its latest start the stand-in found everything that kubelet demands.
stays() {
	newest=$(ls /run/vm/kubelet | sort -n | tail -n 1)
	judged "$newest" && [ "$(cat "/run/vm/kubelet/$newest/verdict")" = runs ]
}
within 60 stays
saw "$newest"
make_service
asks $service_address || die "the Service does not answer"

# Without an API server watch logs an error, but its unit must not fail.
tried() { journalctl -b -u nodegate-watch.service --no-pager -o cat | grep -q 'publishing the condition NodegatePassed'; }
within 120 tried
systemctl is-active --quiet nodegate-watch.service || die "watch failed"

# If an install or uninstall ends before it has notified systemd, the next one must complete it.
deaf() { unshare -m sh -c 'mount --bind /dev/null /run/systemd/private; exec "$@"' deaf "$@"; }
gated() { systemctl show -P ExecStartPre kubelet.service | grep -q 'nodegate gate'; }
not deaf /opt/nodegate uninstall
gated || die "systemd knows of the uninstall, so the test proves nothing"
/opt/nodegate uninstall
not gated || die "the second uninstall left the gate in force"
not systemctl is-active --quiet nodegate-watch.service || die "watch still runs"
not deaf /opt/nodegate install --policy /root/policy.hcl
not gated || die "systemd knows of the install, so the test proves nothing"
/opt/nodegate install --policy /root/policy.hcl
gated || die "the second install left kubelet without its gate"
systemctl start nodegate-watch.service

/opt/nodegate uninstall
not systemctl is-active --quiet nodegate-watch.service || die "watch is still active"
throughout 6 systemctl is-active --quiet kubelet.service
not started $((newest + 1)) || die "uninstall restarted kubelet"
