# The first boot runs without nodegate; only the binary is in place.
install -D -m 0755 "$NODEGATE" "$ROOT/opt/nodegate"
