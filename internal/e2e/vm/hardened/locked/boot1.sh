. /opt/vm/nodeup.sh
watch=nodegate-watch.service
# passes: every check of a running node passes. On a busy machine it may time out.
passes() { nodegate check --stage run >/run/vm/check 2>&1; }
grep -qF '[integrity]' /sys/kernel/security/lockdown || die "the kernel is not locked down"
not test -e /proc/sys/net/ipv6 || die "there is IPv6"
findmnt() { awk -v at="$1" '$2 == at { o = $4 } END { print o }' /proc/mounts; }
for at in /tmp /var; do findmnt $at | grep -q noexec || die "$at is $(findmnt $at)"; done
findmnt /proc | grep -q hidepid || die "/proc is $(findmnt /proc)"
# says UNIT TEXT: this boot's journal of the unit contains the text.
says() { journalctl -b -u "$1" --no-pager -o cat | grep -qF "$2"; }

mkdir -p /run/vm
echo "--- a module without a signature"
within 120 held 1
quiet() { "$@" 2>/dev/null; }
within 60 quiet reported 'module.br_netfilter'
within 60 says nodegate-apply.service 'kernel lockdown (integrity) allows only signed modules'
echo Y >/sys/module/module/parameters/sig_enforce
code=0
nodegate apply --stage boot >/run/vm/apply 2>&1 || code=$?
grep -A6 '^fail' /run/vm/apply
[ $code = 1 ] && grep -qF 'this kernel loads only modules with a trusted signature' /run/vm/apply || die "apply: exit $code: $(cat /run/vm/apply)"
cp /root/signed.ko "/lib/modules/$(uname -r)/kernel/net/bridge/br_netfilter.ko"
systemctl set-environment GODEBUG=fips140=on # for all that follows
systemctl restart nodegate-apply.service
within 120 started 1
saw 1
kubelet=$(systemctl show --value -p MainPID kubelet.service)
[ "$(cat "/proc/$kubelet/attr/current")" = "kubelet (enforce)" ] || die "AppArmor: kubelet is $(cat "/proc/$kubelet/attr/current")"

echo "--- confidentiality"
echo confidentiality >/sys/kernel/security/lockdown
systemctl restart kubelet.service $watch
within 120 started 2
saw 2
rmmod br_netfilter
sysctl -qw net.ipv4.ip_forward=0
systemctl kill -s HUP --kill-who=main $watch
within 60 loaded br_netfilter
within 60 is net.ipv4.ip_forward 1
within 120 passes
tail -n 1 /run/vm/check
nodegate snapshot >/run/vm/snapshot
nodegate probe bridge

echo "--- in a container of containerd"
systemctl stop $watch
sysctl -qw net.ipv4.ip_forward=0
code=0
aa-exec -p cri-containerd.apparmor.d -- nodegate apply --stage boot >/run/vm/apply 2>&1 || code=$?
grep -A4 ip_forward /run/vm/apply
[ $code = 1 ] && grep -qF "AppArmor's profile cri-containerd.apparmor.d confines this process" /run/vm/apply || die "apply in the container: exit $code: $(cat /run/vm/apply)"
nodegate apply --stage boot

echo "--- installed again, and fetched"
nodegate uninstall
/opt/nodegate install --policy /opt/policy.hcl --start
systemctl restart kubelet.service
within 120 started 3
saw 3
nodegate uninstall
serve
nodeup hooks
within 120 started 4
saw 4

echo "--- 1970"
within 60 systemctl is-active --quiet $watch
date -s @86400 # the kernel accepts no time before its own start
systemctl restart kubelet.service
within 120 started 5
saw 5
status() { nodegate status >/run/vm/status; }
within 120 status
cat /run/vm/status
within 120 passes

echo "--- 24 MiB of memory, and a read-only /usr"
mount --bind /usr /usr
mount -o remount,bind,ro /usr
not touch /usr/x 2>/dev/null || die "/usr is writable"
systemctl set-property --runtime kubelet.service MemoryMax=24M MemorySwapMax=0
systemctl restart kubelet.service
within 120 started 6
saw 6
echo "kubelet.service used at most $(cat /sys/fs/cgroup/system.slice/kubelet.service/memory.peak) of 25165824 bytes"
within 120 passes

echo "--- no more modules"
systemctl stop $watch
rmmod br_netfilter
sysctl -qw kernel.modules_disabled=1
systemctl restart --no-block kubelet.service
within 60 grep -qF 'kernel.modules_disabled is 1, so this kernel loads no module until the next boot' /run/nodegate/report.json
held 7 || die "kubelet is not held"
code=0
nodegate apply --stage boot >/run/vm/apply 2>&1 || code=$?
cat /run/vm/apply
[ $code = 1 ] || die "apply exits $code"
nodegate check --stage run >/run/vm/check || cat /run/vm/check
