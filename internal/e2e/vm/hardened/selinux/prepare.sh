# The tree has labels before nodegate is installed, as an image of a distribution with SELinux. This machine itself runs no SELinux.
# The stand-in gets the label that a kubelet has.
contexts=/etc/selinux/default/contexts/files/file_contexts
printf '%s\t--\tsystem_u:object_r:bin_t:s0\n' '/opt/vm/.*' >"$ROOT$contexts.local"
# label OPTION...: run setfiles on the tree.
label() { unshare -m sh -euc 'mount -t proc proc "$0/proc"; exec chroot "$0" setfiles "$@"' "$ROOT" "$@" $contexts /; }
# The kops node's files, for nodegate-fetch.
mkdir -p "$ROOT/opt/nodeup" "$ROOT/srv/www"
cp "$NODEGATE" "$ROOT/srv/www/nodegate"
cp "$ROOT/lib/systemd/system/kubelet.service" "$ROOT/opt/nodeup/"
"$NODEGATE" export kops --binary http://127.0.0.1:8080/nodegate --sha256 "$(sha256sum <"$NODEGATE" | cut -d' ' -f1)" --output "$ROOT/opt/nodeup/export.yaml"
go run ./nodeup "$ROOT/opt/nodeup/export.yaml" "$ROOT/opt/nodeup"
install -m 0755 "$NODEGATE" "$ROOT/opt/nodegate"
cp "$SCENARIO/policy.hcl" "$ROOT/opt/policy.hcl"
# The package, from the same sources.
(cd ../../.. && VERSION=0.0.1 go run ./images/release deb "$ROOT/opt/package")
label -F
"$NODEGATE" install --root "$ROOT" --policy "$SCENARIO/policy.hcl"
wrong=$(label -n -v)
[ -z "$wrong" ] || { echo "installed into the tree with the wrong labels: $wrong" >&2; exit 1; }
