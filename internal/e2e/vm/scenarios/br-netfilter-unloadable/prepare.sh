"$NODEGATE" install --root "$ROOT"
echo 'install br_netfilter /bin/false' >"$ROOT/etc/modprobe.d/broken.conf"
# The guide's commands: those for a held node, and those that repair it.
for word in held mend; do
	awk -v want="sh node $word" '/^```/ { on = !on && substr($0, 4) == want; next } on' ../../../docs/guides/held-node.md >"$ROOT/opt/$word"
	grep -q . "$ROOT/opt/$word"
done
