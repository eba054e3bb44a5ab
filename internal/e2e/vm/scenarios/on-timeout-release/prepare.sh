"$NODEGATE" install --root "$ROOT" --policy "$SCENARIO/policy.hcl"
echo 'install br_netfilter /bin/false' >"$ROOT/etc/modprobe.d/broken.conf"
