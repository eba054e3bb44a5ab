. "$SCENARIO/../../carriers_prepare.sh"
bake
rm "$ROOT/etc/systemd/system/multi-user.target.wants/kubelet.service"
"$NODEGATE" export kubeadm --policy "$policy" --output "$ROOT/opt/config.yaml"
go run ./bootstrap "$ROOT/opt/config.yaml" >"$ROOT/opt/bootstrap.sh"
