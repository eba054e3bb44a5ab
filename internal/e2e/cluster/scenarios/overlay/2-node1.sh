exits() { journalctl -b --no-pager -u flanneld.service | grep -q 'Failed to check br_netfilter'; }
within 300 exits
! loaded br_netfilter && ! made || die "flanneld has what it needs on a stock node: this step proves nothing"
echo "without nodegate: flanneld exits, because br_netfilter is not loaded"

modprobe br_netfilter # what a person does next
within 120 made
[ "$(offload)" = on ] || die "flannel.1 is made with the offload off: this scenario proves nothing"
POLICY=/opt/overlay.hcl names link.overlay fail
