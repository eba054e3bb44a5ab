first_start
saw 1
# systemd would list a failed unit until the next reboot, although its file is removed.
install -D -m 0644 /dev/stdin /run/systemd/system/nodegate-apply.service.d/fails.conf <<'EOF'
[Service]
ExecStart=
ExecStart=/bin/false
EOF
systemctl daemon-reload
! systemctl restart nodegate-apply || die "nodegate-apply did not fail"
rm -r /run/systemd/system/nodegate-apply.service.d
/opt/nodegate uninstall
left=$(systemctl list-units --all --state=failed --no-legend --plain 'nodegate*')
[ -z "$left" ] || die "systemd still lists $left"
