"$NODEGATE" install --root "$ROOT"
echo 'install br_netfilter /bin/false' >"$ROOT/etc/modprobe.d/broken.conf"
