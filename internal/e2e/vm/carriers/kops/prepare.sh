. "$SCENARIO/../../carriers_prepare.sh"
bake
mkdir -p "$ROOT/opt/nodeup"
mv "$ROOT/lib/systemd/system/kubelet.service" "$ROOT/opt/nodeup/"
rm "$ROOT/etc/systemd/system/multi-user.target.wants/kubelet.service"
"$NODEGATE" export kops --policy "$policy" --output "$ROOT/opt/nodeup/export.yaml"
go run ./nodeup "$ROOT/opt/nodeup/export.yaml" "$ROOT/opt/nodeup"
