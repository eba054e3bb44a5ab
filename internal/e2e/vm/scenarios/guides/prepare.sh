install -m 0755 "$NODEGATE" "$ROOT/usr/local/sbin/nodegate"
# blocks GUIDE WORDS: print a guide's blocks that begin with these words.
blocks() { awk -v want="$2" '/^```/ { on = !on && substr($0, 4) == want; next } on' "../../../docs/guides/$1.md"; }
for guide in kops kubeadm k3s-rke2; do
	mkdir -p "$ROOT/opt/guides/$guide"
	blocks $guide 'hcl node.hcl' >"$ROOT/opt/guides/$guide/node.hcl"
	blocks $guide 'sh node' >"$ROOT/opt/guides/$guide/commands"
	grep -q 'nodegate install' "$ROOT/opt/guides/$guide/commands"
done
printf '[Service]\nType=oneshot\nExecStart=/sbin/modprobe br_netfilter\n[Install]\nWantedBy=multi-user.target\n' >"$ROOT/etc/systemd/system/fix-bridge.service"
ln -s /etc/systemd/system/fix-bridge.service "$ROOT/etc/systemd/system/multi-user.target.wants/"
printf '[Service]\nType=exec\nExecStart=/bin/sleep infinity\nRestart=always\n' >"$ROOT/etc/systemd/system/k3s.service"
