# The common end of the carriers' tests. Sourced after lib.sh.

# overlay: make a link as flannel does, after everything else.
overlay() {
	ip link add flannel.1 type vxlan id 1 dev lo dstport 8472
	ip link set flannel.1 up
}

overlay_done() { ethtool -k flannel.1 | grep -q 'tx-checksum-ip-generic: off' && [ "$(cat /sys/class/net/flannel.1/mtu)" = 1400 ]; }

# carried: print a snapshot of the machine for the test.
carried() {
	udevadm settle
	/opt/nodegate snapshot --policy /opt/carriers.hcl --stage boot -o /run/vm/snapshot.json
	echo "SNAPSHOT $(base64 -w0 /run/vm/snapshot.json)"
}
