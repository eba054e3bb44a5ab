first_start
within 120 settled
udevadm settle
mkdir -p /run/reverted
cd /run/reverted

# parameters FILE: each line of each parameter that root can read.
parameters() { grep -rs '' /proc/sys --exclude-dir=binfmt_misc | sort >"$1"; }

# differing A B: the parameters that differ.
differing() { diff "$1" "$2" | sed -n 's/^[<>] \([^:]*\):.*/\1/p' | sort -u; }

# The parameters that change by themselves: the same programs run between two pictures, and write nothing.
: >own
parameters before
try=0
while [ $try -lt 5 ]; do
	try=$((try + 1))
	sleep 1
	/opt/nodegate snapshot --whole --output control.json 2>/dev/null || :
	parameters control
	differing before control >>own
done
sort -u -o own own
grep -q /proc/sys/kernel/random/uuid own || die "no parameter changes by itself, not even kernel.random.uuid"
echo "change by themselves: $(tr '\n' ' ' <own)"

policies=0
while read -r settings; do
	policies=$((policies + 1))
	: >policy.hcl
	for s in $settings; do # a comma stands for a space
		printf 'sysctl "%s" { value = "%s" }\n' "${s%%=*}" "$(echo "${s#*=}" | tr , ' ')" >>policy.hcl
	done
	/opt/nodegate apply --policy policy.hcl >applied 2>&1 || die "$settings: apply exits $?: $(cat applied)"
	parameters during
	differing before during | grep -qvxFf own || die "$settings: apply changed nothing"
	/opt/nodegate revert >reverted 2>&1 || die "$settings: revert exits $?: $(cat reverted)"
	parameters after
	left=$(differing before after | grep -vxFf own || :)
	[ -z "$left" ] || die "$settings: not restored: $left
$(diff before after)
$(cat applied reverted)"
done <<END
net.ipv4.ip_forward=1
net.ipv4.ip_forward=1 net.ipv4.conf.default.forwarding=0
net.ipv4.conf.all.forwarding=1 net.ipv4.conf.default.rp_filter=2
net.ipv4.ip_forward=1 net.ipv4.conf.all.accept_redirects=0 net.ipv4.conf.default.accept_redirects=0
net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.lo.disable_ipv6=0
net.ipv6.conf.all.disable_ipv6=1 net.ipv4.conf.all.send_redirects=0
net.ipv6.conf.default.disable_ipv6=1
net.ipv6.conf.all.forwarding=1
net.ipv6.conf.all.forwarding=1 net.ipv6.conf.default.forwarding=0 net.ipv6.conf.all.accept_ra=2
net.ipv6.conf.all.accept_ra=2 net.ipv6.conf.default.accept_ra=0 net.ipv6.conf.all.accept_redirects=0
vm.dirty_bytes=100000000
vm.dirty_background_bytes=50000000 vm.dirty_ratio=30
vm.overcommit_ratio=80
vm.overcommit_memory=1
vm.min_free_kbytes=32768
vm.max_map_count=262144
vm.swappiness=10
kernel.panic=10 kernel.panic_on_oops=1
kernel.pid_max=131072
kernel.printk=3,4,1,3
kernel.sysrq=0
fs.file-max=1048576
fs.inotify.max_user_instances=8192 fs.inotify.max_user_watches=524288
net.core.somaxconn=8192
net.core.rmem_max=16777216 net.core.wmem_max=16777216
net.ipv4.ip_local_port_range=20000,60999
net.ipv4.tcp_rmem=4096,131072,8388608
net.ipv4.tcp_keepalive_time=600 net.ipv4.tcp_fin_timeout=30
net.ipv4.neigh.default.gc_thresh1=1024 net.ipv4.neigh.default.gc_thresh2=4096 net.ipv4.neigh.default.gc_thresh3=8192
net.ipv4.conf.all.log_martians=1 net.ipv4.conf.default.log_martians=1
END
echo "$policies policies were applied and reverted"
[ "$policies" -eq 30 ] || die "not 30 policies"
