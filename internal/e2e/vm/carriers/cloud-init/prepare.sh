. "$SCENARIO/../../carriers_prepare.sh"
bake
cp /etc/resolv.conf "$ROOT/etc/resolv.conf"
chroot "$ROOT" sh -euc 'export DEBIAN_FRONTEND=noninteractive; apt-get update -qq; apt-get install -y -qq --no-install-recommends cloud-init' >/dev/null
mkdir -p "$ROOT/var/lib/cloud/seed/nocloud"
"$NODEGATE" export cloud-init --policy "$policy" --output "$ROOT/var/lib/cloud/seed/nocloud/user-data"
echo 'instance-id: first' >"$ROOT/var/lib/cloud/seed/nocloud/meta-data"
printf 'datasource_list: [NoCloud, None]\nnetwork: {config: disabled}\n' >"$ROOT/etc/cloud/cloud.cfg.d/99-test.cfg"
chroot "$ROOT" cloud-init schema --config-file /var/lib/cloud/seed/nocloud/user-data
