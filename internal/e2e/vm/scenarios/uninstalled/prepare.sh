# In the image, install and uninstall must leave the tree unchanged. The machine then boots without nodegate.
manifest() {
	cd "$ROOT"
	find . -mindepth 1 -printf '%p %y %m %U:%G %l\n' | sort
	find . -type f -print0 | sort -z | xargs -0 sha256sum
}
(manifest) >"$ROOT/../before"
"$NODEGATE" install --root "$ROOT"
"$NODEGATE" uninstall --root "$ROOT"
(manifest) >"$ROOT/../after"
diff -u "$ROOT/../before" "$ROOT/../after"
install -D -m 0755 "$NODEGATE" "$ROOT/opt/nodegate"
