# The first boot is a machine without nodegate: only the binary lies ready.
install -D -m 0755 "$NODEGATE" "$ROOT/opt/nodegate"
