install -D -m 0755 "$NODEGATE" "$ROOT/opt/nodegate"
