cp "$SCENARIO/policy.hcl" "$ROOT/opt/overlay.hcl"
[ "$NODE" = node1 ] || "$NODEGATE" install --root "$ROOT" --policy "$SCENARIO/policy.hcl" # node1 starts without nodegate

# From boot on the kernel traces each packet that leaves through flannel.1.
cat >"$ROOT/opt/packets.sh" <<'E'
cd /sys/kernel/tracing
echo mono >trace_clock
cd events/net/net_dev_start_xmit
echo 'name == "flannel.1" && protocol == 0x0800' >filter
echo 1 >enable
E
printf '%s\n' '[Unit]' 'Before=kubelet.service flanneld.service' '[Service]' 'Type=oneshot' 'ExecStart=/bin/sh -eu /opt/packets.sh' \
	>"$ROOT/etc/systemd/system/packets.service"
ln -s ../packets.service "$ROOT/etc/systemd/system/multi-user.target.wants/packets.service"
