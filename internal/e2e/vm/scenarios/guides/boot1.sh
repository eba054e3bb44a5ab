within 120 settled
loaded br_netfilter || die "fix-bridge.service did not run, so there is nothing to migrate"

# follow GUIDE: run its commands in its directory.
follow() {
	echo "== $1"
	cd "/opt/guides/$1"
	sh -eux commands >/run/vm/guide 2>&1 || { cat /run/vm/guide >&2; die "the guide $1"; }
	grep '^+' /run/vm/guide
}

follow kops
not test -e /etc/systemd/system/fix-bridge.service || die "the old unit still exists"
gate=/etc/systemd/system/kubelet.service.d/10-nodegate.conf
[ -e $gate ] || die "the gate is missing"
nodegate uninstall

follow kubeadm
not test -e $gate || die "uninstall left the gate"

follow k3s-rke2
not test -e /etc/systemd/system/k3s.service.d/10-nodegate.conf || die "uninstall left the gate of k3s"
