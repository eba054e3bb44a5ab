# What kops' nodeup does on a node's first boot with what `nodegate export kops` printed. Sourced after lib.sh.
# /opt/nodeup is what internal/e2e/vm/nodeup made of it, /opt/nodeup/kubelet.service kubelet's unit.

# nodeup kubelet|hooks: writes the files, applies the sysctls, and restarts all units, kubelet first or last, waiting for none.
nodeup() {
	for asset in /opt/nodeup/assets/*; do
		path=$(cat "$asset/path")
		mkdir -p "${path%/*}"
		install -m "$(cat "$asset/mode")" "$asset/content" "$path"
	done
	cp /opt/nodeup/sysctls /etc/sysctl.d/99-k8s-general.conf
	mkdir -p /run/vm
	sysctl --system >/run/vm/sysctl-system 2>&1 || { cat /run/vm/sysctl-system >&2; die "sysctl --system fails: nodeup would"; }
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

# serve: a server on the loopback for what lies in /srv/www.
serve() {
	busybox httpd -p 127.0.0.1:8080 -h /srv/www
}
