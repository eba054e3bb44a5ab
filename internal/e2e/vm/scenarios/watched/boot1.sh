watch=nodegate-watch.service
main() { systemctl show --value -p MainPID $watch; }
look() { systemctl kill -s HUP --kill-who=main $watch; } # start a round now
says() { journalctl -b -u $watch --no-pager -o cat | grep -F "$1" >/dev/null; }
vxlan() { ip link add "$1" type vxlan id "$2" dstport 8472; }
# checksum_off LINK: queried with nodegate itself.
checksum_off() { nodegate check --policy /opt/vm/one.hcl --var "link=$1" --stage run >/dev/null; }
cat >/opt/vm/one.hcl <<'HCL'
variable "link" { type = string }
link "one" {
  match { name = var.link }
  offload = { tx-checksum-ip-generic = false }
}
HCL

first_start
saw 1
within 60 systemctl is-active --quiet $watch
[ "$(systemctl show --value -p UnitFileState $watch)" = enabled ] || die "$watch is not enabled"

echo "--- links that appear after kubelet"
vxlan flannel.1 1
ip link add cni0 type bridge
within 60 checksum_off flannel.1
within 60 is net.ipv4.conf.cni0.rp_filter 2
within 60 grep -qx 1450 /sys/class/net/cni0/mtu
ip link del flannel.1
vxlan flannel.1 1
within 60 checksum_off flannel.1

echo "--- drift"
sysctl -qw net.ipv4.ip_forward=0 kernel.panic_on_warn=1 kernel.printk_ratelimit=7
look
within 60 is net.ipv4.ip_forward 1
within 60 says "corrected sysctl.net.ipv4.ip_forward: was 0, is 1"
within 60 says "sysctl.kernel.panic_on_warn: want 0, got 1"
is kernel.panic_on_warn 1 || die "a sysctl with drift = report was corrected"
is kernel.printk_ratelimit 7 || die "a sysctl with drift = ignore was corrected"
rmmod br_netfilter
look
within 60 loaded br_netfilter
within 60 is net.bridge.bridge-nf-call-iptables 1

echo "--- status"
status=0
nodegate status >/run/vm/status || status=$?
cat /run/vm/status
[ $status = 1 ] || die "status exits $status where a blocking requirement fails, want 1"
grep -q '^fixed .*sysctl.net.ipv4.ip_forward .*0 -> 1' /run/vm/status || die "status does not report the correction"
sysctl -qw kernel.panic_on_warn=0
look
within 60 nodegate status
shows_pass() { systemctl status $watch | grep -qF 'Status: "pass; '; }
within 60 shows_pass

echo "--- systemd re-executes itself, as in its own update, and closes its connections"
systemctl daemon-reexec
within 60 systemctl is-active --quiet $watch
sysctl -qw net.ipv4.ip_forward=0
look
within 60 is net.ipv4.ip_forward 1 # at least one round since then
look
within 60 nodegate status
! says "querying systemd" || die "watch could not query systemd: $(journalctl -b -u $watch --no-pager -o cat | grep -F 'querying systemd')"

echo "--- a fight"
# An emulated machine takes seconds to answer the eighty requirements of the policy, and a fight is seen in several short rounds.
cat >/opt/vm/few.hcl <<'HCL'
sysctls {
  values = {
    "net.ipv4.ip_forward" = 1
    "kernel.panic"         = 10
    "kernel.panic_on_oops" = 1
    "vm.panic_on_oom"      = 0
    "vm.overcommit_memory" = 1
  }
}

link "flannel" {
  match { kind = "vxlan" }
  offload = { tx-checksum-ip-generic = false }
}
HCL
# used: print the processor time of the next 20 seconds.
used() {
	before=$(systemctl show --value -p CPUUsageNSec $watch)
	sleep 20
	echo "processor time of $watch in 20 s $1: $((($(systemctl show --value -p CPUUsageNSec $watch) - before) / 1000000)) ms (under emulation)"
}
mkdir -p /etc/systemd/system/$watch.d
printf '[Service]\nExecStart=\nExecStart=/usr/local/bin/nodegate watch --policy /opt/vm/few.hcl --interval 3s --listen 127.0.0.1:9758\nCPUAccounting=yes\nWatchdogSec=20s\nTimeoutAbortSec=2s\n' >/etc/systemd/system/$watch.d/50-test.conf
systemctl daemon-reload
systemctl restart $watch
used "without a fight, with a round every 3 s"
systemd-run -q --unit=rival sh -c 'while sleep 1; do sysctl -qw net.ipv4.ip_forward=0; done'
within 60 says "fight over sysctl.net.ipv4.ip_forward"
nodegate status || :
used "during a fight"
[ "$(journalctl -b -u $watch --no-pager -o cat NODEGATE_EVENT=fight | grep -cF 'fight over')" = 1 ] || die "the fight was reported more than once"
corrected=$(nodegate status --format json | grep -o '"sysctl.net.ipv4.ip_forward": [0-9]*' | tail -n 1)
[ "$corrected" = '"sysctl.net.ipv4.ip_forward": 5' ] || die "while corrections pause: corrected $corrected"
systemctl stop rival

echo "--- the listener"
busybox wget -qO - http://127.0.0.1:9758/healthz | grep -qx ok || die "/healthz"
busybox wget -qO - http://127.0.0.1:9758/metrics | grep -q '^nodegate_watch_fight{name="sysctl.net.ipv4.ip_forward"} 1$' || die "/metrics"

echo "--- kill -9"
pid=$(main)
kill -9 "$pid"
vxlan flannel.2 2
within 60 checksum_off flannel.2
[ "$(main)" != "$pid" ] || die "systemd did not restart $watch"
says "Main process exited, code=killed, status=9/KILL" || die "kill -9 did not end it"

echo "--- a hang"
within 60 systemctl is-active --quiet $watch # systemd's watchdog works only after the start
kill -STOP "$(main)"
vxlan flannel.3 3
within 60 checksum_off flannel.3
says "Watchdog timeout" || die "the watchdog did not fire"

echo "--- break glass"
within 60 systemctl is-active --quiet $watch
touch /etc/nodegate/disabled
sysctl -qw kernel.panic=0
within 60 sh -c "nodegate status | grep -q 'break-glass in force (/etc/nodegate/disabled)'"
is kernel.panic 0 || die "watch corrects although break-glass is on"
rm /etc/nodegate/disabled
within 60 is kernel.panic 10

echo "--- the clock steps"
# Rounds run every ten minutes, so only the step can trigger one.
sed -i "s/--interval 3s/--interval 10m/; s/WatchdogSec=20s/WatchdogSec=8s/" /etc/systemd/system/$watch.d/50-test.conf
systemctl daemon-reload
systemctl restart $watch
within 60 nodegate status
# step HOURS KEY BAD GOOD: the same process starts a round at once, its report is not stale, and no age is negative or an hour off.
step() {
	pid=$(main) restarts=$(systemctl show --value -p NRestarts $watch)
	sysctl -qw "$2=$3"
	date -s "$1 hour" >/dev/null
	within 60 is "$2" "$4"
	within 60 nodegate status
	nodegate status >/run/vm/status
	not grep -E ' -[0-9]| [0-9]+h' /run/vm/status || die "wrong ages after a step of $1 hour"
	sleep 10 # longer than the time of systemd's watchdog
	[ "$(main) $(systemctl show --value -p NRestarts $watch)" = "$pid $restarts" ] || die "$watch did not survive a step of $1 hour"
}
step +1 vm.overcommit_memory 0 1
step -1 kernel.panic_on_oops 0 1
step -1 vm.panic_on_oom 1 0
step +1 kernel.panic 0 10

echo "--- uninstall"
rm -r /etc/systemd/system/$watch.d
nodegate uninstall
not systemctl is-active --quiet $watch || die "$watch still runs"
