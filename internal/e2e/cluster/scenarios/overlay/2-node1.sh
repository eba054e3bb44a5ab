exits() { journalctl -b --no-pager -u flanneld.service | grep -q 'Failed to check br_netfilter'; }
within 300 exits
! loaded br_netfilter && ! made || die "flanneld runs on a stock node, so this step proves nothing"
echo "without nodegate: flanneld exits, because br_netfilter is not loaded"

modprobe br_netfilter # the usual next step of an administrator
within 120 made
[ "$(offload)" = on ] || die "flannel.1 starts with the offload off, so this scenario proves nothing"
POLICY=/opt/overlay.hcl names link.overlay fail
