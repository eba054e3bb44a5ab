"$NODEGATE" install --root "$ROOT"
mkdir -p "$ROOT/etc/systemd/network"
cat >"$ROOT/etc/systemd/network/10-overlay.network" <<'NETWORK'
[Match]
Name=overlay0
[Network]
Address=10.9.0.1/24
LinkLocalAddressing=no
NETWORK
