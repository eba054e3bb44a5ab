keep kubelet kubelet_process
nodegate uninstall
left=$(find /etc -name '*nodegate*' ! -path /etc/nodegate; grep -rl bin/nodegate /etc || :)
[ -z "$left" ] || die "these files are left: $left"
[ -z "$(systemctl show -P ExecStartPre kubelet.service)" ] || die "kubelet still has a gate"
systemctl --quiet is-active nodegate-watch.service && die "watch still runs"
dpkg -P nodegate
left=$(systemctl list-unit-files --no-legend 'nodegate*' || :; systemctl list-units --no-legend 'nodegate*')
[ -z "$left" ] || die "systemd still lists: $left"
[ -z "$(ls -d /etc/nodegate /var/lib/nodegate /usr/bin/nodegate 2>/dev/null)" ] || die "files are left"
unchanged kubelet kubelet_process || die "kubelet was restarted"
