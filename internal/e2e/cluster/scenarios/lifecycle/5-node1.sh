proven /usr/local/bin/nodegate || die "the image's gate did not let kubelet start"
kubelet_began
keep kubelet kubelet_process

# Beside a baked installation, the package changes nothing, and prints how to switch to it.
dpkg -i /opt/releases/nodegate_1.0.0-1_amd64.deb >/run/dpkg
cat /run/dpkg
grep -qF '/usr/bin/nodegate install' /run/dpkg || die "the package does not print how to switch to it"
within 60 watched_by /usr/local/bin/nodegate v1.0.0
grep -q '^ExecStartPre=+.* exec /usr/local/bin/nodegate gate' /etc/systemd/system/kubelet.service.d/10-nodegate.conf || die "the gate runs another binary"

/usr/bin/nodegate install
systemctl restart nodegate-watch.service
within 60 watched_by /usr/bin/nodegate v1.0.0
[ -z "$(ls -d /usr/local/bin/nodegate /etc/systemd/system/nodegate-* 2>/dev/null)" ] || die "files of the baked installation are left"

dpkg -i /opt/releases/nodegate_1.0.1-1_amd64.deb
within 60 watched_by /usr/bin/nodegate v1.0.1
unchanged kubelet kubelet_process || die "kubelet was restarted"
within 120 /usr/bin/nodegate status
nodegate check --stage run || die "nodegate check does not pass on a Ready node"
