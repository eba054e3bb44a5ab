# ignite CONFIG: Ignition writes files and units below $ROOT. Sourced by prepare.sh.
ignite() {
	# It would label the files: another program takes the place of setfiles.
	mkdir -p "$ROOT/etc/selinux" "$ROOT/opt/ignition"
	echo SELINUXTYPE=none >"$ROOT/etc/selinux/config"
	ln -s /bin/true "$ROOT/opt/ignition/setfiles"
	for stage in fetch files; do
		PATH=$ROOT/opt/ignition:$PATH IGNITION_CONFIG_FILE=$1 /usr/lib/dracut/modules.d/30ignition/ignition --platform=file --root="$ROOT" \
			--stage=$stage --config-cache="$ROOT/opt/ignition/cache.json" --log-to-stdout
	done
	rm -r "$ROOT/etc/selinux"
	# As systemd does at a first boot.
	sed -n 's/^enable //p' "$ROOT/etc/systemd/system-preset/20-ignition.preset" | xargs systemctl --root "$ROOT" preset
}
