# Writes the configuration that flannel's CNI plugin would derive from /run/flannel/subnet.env: a bridge for the Pods with the overlay's MTU.
. /run/flannel/subnet.env
mkdir -p /etc/cni/net.d
cat >/etc/cni/net.d/.flannel <<-J
	{"cniVersion": "0.4.0", "name": "cbr0", "plugins": [
	 {"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "ipMasq": false, "hairpinMode": true, "mtu": $FLANNEL_MTU,
	  "ipam": {"type": "host-local", "ranges": [[{"subnet": "${FLANNEL_SUBNET%.1/24}.0/24"}]], "routes": [{"dst": "$FLANNEL_NETWORK"}]}}]}
J
mv /etc/cni/net.d/.flannel /etc/cni/net.d/10-flannel.conflist
