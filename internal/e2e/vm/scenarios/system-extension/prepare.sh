# As in docs/packages.md; Ignition writes its files.
mkdir -p "$ROOT/var/lib/extensions"
go run ../../../images/release extension "$NODEGATE" "$ROOT/var/lib/extensions/nodegate.raw"
systemctl --root="$ROOT" enable systemd-sysext.service
"$NODEGATE" export ignition --path /usr/bin/nodegate --output "$ROOT/opt/config.ign"
. "$SCENARIO/../../ignite.sh"
ignite "$ROOT/opt/config.ign"
