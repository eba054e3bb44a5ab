# ignite CONFIG: Ignition writes files and units below $ROOT. Sourced by prepare.sh.
ignite() {
	mkdir -p "$ROOT/etc/selinux"
	echo SELINUX=disabled >"$ROOT/etc/selinux/config" # or Ignition labels the files
	for stage in fetch files; do
		IGNITION_CONFIG_FILE=$1 /usr/lib/dracut/modules.d/30ignition/ignition --platform=file --root="$ROOT" --stage=$stage \
			--config-cache="$ROOT/opt/ignition.json" --log-to-stdout
	done
	# As systemd does at a first boot.
	sed -n 's/^enable //p' "$ROOT/etc/systemd/system-preset/20-ignition.preset" | xargs systemctl --root "$ROOT" preset
}
