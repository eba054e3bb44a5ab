#!/bin/sh
# Shows nodegate at work without changing the machine it runs on. It installs into a temporary root. The rest happens inside its own
# namespaces, in which sysctls of the whole machine are read-only and nothing reaches its console. It needs root, or a machine that allows
# unprivileged user namespaces. In a chroot root has a network namespace only, and the parts that write files are left out.
set -eu
[ $# -ge 1 ] || { echo "usage: demo.sh NODEGATE-BINARY" >&2; exit 2; }
PATH=$PATH:/usr/sbin:/sbin # an ordinary user's path often lacks these directories, and with them ip
binary=$(realpath "$1")
forwarding=/proc/sys/net/ipv4/ip_forward
bridge_call=/proc/sys/net/bridge/bridge-nf-call-iptables # 0 on a node without fix-bridge

# step STATUS ARGUMENT... prints a command line, runs it, and fails unless it exits with STATUS; "any" depends on the machine.
step() {
	want=$1; shift
	echo "\$ nodegate $*"
	got=0
	"$binary" "$@" || got=$?
	[ "$want" = any ] || [ "$got" = "$want" ] || { echo "demo: nodegate $1: exit status $got, expected $want" >&2; return "$got"; }
}

in_chroot() { ! grep -Eq '^[0-9]+ [0-9]+ [^ ]+ [^ ]+ / ' /proc/self/mountinfo; }

left_out() {
	remedy='Run `make demo` outside of this container or chroot, or allow it to create user namespaces.'
	if in_chroot; then
		remedy='This is a chroot, in which the kernel creates no user namespaces: run `make demo` outside of it, or as root.'
	elif [ "$(cat /proc/sys/user/max_user_namespaces)" = 0 ]; then
		remedy='The number of user namespaces is 0: see `sysctl user.max_user_namespaces`.'
	elif [ "$(id -u)" != 0 ]; then
		remedy='Run `make demo` as root, or allow unprivileged user namespaces.'
	fi
	printf '\n# Parts 2 to 5 are skipped: this machine does not let you create namespaces and mounts (%s). %s\n' "$1" "$remedy"
	exit 0
}

# protect makes the sysctls of the whole machine read-only inside the namespace: if root created the user namespace, root inside it
# still owns them. It hides /run and the console.
protect() {
	mount -t tmpfs none /run || return
	[ ! -e /dev/console ] || mount --bind /dev/null /dev/console || return
	for dir in kernel vm fs; do
		mount --bind "/proc/sys/$dir" "/proc/sys/$dir" || return
		mount -o remount,bind,ro,nosuid,nodev,noexec "/proc/sys/$dir" || return
	done
}

hold() {
	printf '\n# 3. A node that is wrong: ip_forward is 0. The gate runs before kubelet, and holds it.\n'
	if [ "$files" = no ]; then
		echo "#    Left out in a chroot: the gate writes to the console and to /run, which the demo cannot hide there."
		return
	fi
	cat >"$root/forward.hcl" <<-'POLICY'
		sysctl "net.ipv4.ip_forward" {
		  value  = 1
		  reason = "Without it the node drops every packet between its Pods and other machines."
		}

		gate {
		  repair   = false # so that it can be seen to hold
		  interval = "500ms"
		}
	POLICY
	{ sleep 3; echo "# (3 seconds later, the demo sets ip_forward to 1. Nothing else is needed.)"; echo 1 >$forwarding; } &
	step 0 gate --policy "$root/forward.hcl" --budget 1m $allow
	wait
}

carry() {
	printf '\n# 4. A Service whose endpoint is on the same node, with real packets: it fails, and is cured.\n'
	if [ ! -e $bridge_call ]; then
		echo "#    Left out: this kernel has not loaded br_netfilter. Run \`modprobe br_netfilter\` and \`make demo\` again to see it."
		return
	fi
	echo 1 >$forwarding
	echo 0 >$bridge_call
	status=0
	step 1 probe bridge || status=$?
	if [ "$status" = 3 ]; then # a kernel without NAT, or one that loads no module for a namespace
		echo "#    Left out: this kernel does not let the probe translate addresses in a namespace."
		return
	fi
	[ "$status" = 0 ]
	cat >"$root/demo.hcl" <<-'POLICY'
		sysctl "net.bridge.bridge-nf-call-iptables" {
		  value  = 1
		  reason = "Without it the reply of a Service whose endpoint is on the same node is not translated back."
		}

		link "vxlan" {
		  match { kind = "vxlan" }
		  offload = { tx-checksum-ip-generic = false }
		  reason  = "The kernel's VXLAN checksum bug delays each connection by seconds."
		}
	POLICY
	if [ "$files" = yes ]; then
		step 0 apply "$root/demo.hcl" $allow
	else
		echo "#    (apply records its changes in /run, which the demo cannot hide in a chroot; so it sets the sysctl itself.)"
		echo 1 >$bridge_call
	fi
	step 0 probe bridge
}

if [ "${2-}" = inside ]; then # the second run, in the scratch namespaces
	root=$3 files=$4 allow=${5-}
	[ "$files" = no ] || why=$(protect 2>&1) || left_out "$why"
	! command -v ip >/dev/null || ip link add flannel.1 type vxlan id 1 dstport 8472
	echo 0 >$forwarding
	printf '\n# 2. In a scratch network namespace: the findings of the built-in policy. Sysctls of the whole\n#    machine are only read.\n'
	echo 'use "kubernetes" {}' >"$root/kubernetes.hcl"
	step any plan "$root/kubernetes.hcl"
	hold
	carry
	printf '\n# 5. How to undo it all.\n'
	[ "$files" = no ] || step 0 revert
	printf '\n# On a node, `nodegate uninstall --revert` removes the files and restores the settings.\n'
	exit
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/etc/systemd/system"
printf '[Service]\nExecStart=/bin/true\n' >"$root/etc/systemd/system/kubelet.service"
echo "# 1. Install into an image: the files it writes. A second install changes nothing."
for verb in install install uninstall; do step 0 $verb --root "$root"; done

allow=''
[ "$(id -u)" = 0 ] || allow=--allow-writable # no file belongs to root in the user namespace of an ordinary user
if why=$(unshare --user --map-root-user --net --mount true 2>&1); then
	unshare --user --map-root-user --net --mount --propagation private "$0" "$binary" inside "$root" yes $allow
elif [ "$(id -u)" = 0 ] && in_chroot && why=$(unshare --net true 2>&1); then
	unshare --net "$0" "$binary" inside "$root" no
else
	left_out "$why"
fi
