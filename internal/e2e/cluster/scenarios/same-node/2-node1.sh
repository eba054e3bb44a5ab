not loaded br_netfilter || die "br_netfilter is loaded on a stock node, so this scenario proves nothing"
/opt/nodegate install
# From the gate's opening on, status is asked every second of the next boot.
cat >/etc/systemd/system/statuses.service <<'U'
[Service]
ExecStart=/bin/sh -c 'until [ -e /run/nodegate/passes ]; do sleep 0.2; done; while :; do nodegate status; echo "exit $?"; sleep 1; done >/run/statuses 2>&1'
[Install]
WantedBy=multi-user.target
U
systemctl enable statuses.service
