# Does the work of kops' nodeup at a node's first boot, for the output of `nodegate export kops`. Sourced after lib.sh.
# internal/e2e/vm/nodeup has split that output into /opt/nodeup; kubelet's unit is /opt/nodeup/kubelet.service.

# nodeup kubelet|hooks: write the files, apply the sysctls, and restart all units without waiting, with kubelet first or last.
nodeup() {
	for asset in /opt/nodeup/assets/*; do
		path=$(cat "$asset/path")
		mkdir -p "${path%/*}"
		install -m "$(cat "$asset/mode")" "$asset/content" "$path"
	done
	cp /opt/nodeup/sysctls /etc/sysctl.d/99-k8s-general.conf
	mkdir -p /run/vm
	sysctl --system >/run/vm/sysctl-system 2>&1 || { cat /run/vm/sysctl-system >&2; die "sysctl --system fails, so nodeup would fail"; }
	for hook in /opt/nodeup/hooks/*; do
		cp "$hook/manifest" "/lib/systemd/system/$(cat "$hook/name")"
	done
	cp /opt/nodeup/kubelet.service /lib/systemd/system/kubelet.service
	systemctl daemon-reload
	[ "$1" != kubelet ] || systemctl restart --no-block kubelet.service
	for hook in /opt/nodeup/hooks/*; do
		systemctl restart --no-block "$(cat "$hook/name")"
	done
	[ "$1" = kubelet ] || systemctl restart --no-block kubelet.service
	systemctl enable $(cat /opt/nodeup/hooks/*/name) kubelet.service
}

# serve: serve /srv/www on the loopback.
serve() {
	busybox httpd -p 127.0.0.1:8080 -h /srv/www
}
