"$NODEGATE" install --root "$ROOT"
echo 'install br_netfilter /bin/false' >"$ROOT/etc/modprobe.d/rival.conf"
cp "$SCENARIO/policy.hcl" "$ROOT/opt/release.hcl"
