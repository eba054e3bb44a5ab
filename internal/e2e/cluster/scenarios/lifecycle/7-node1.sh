value() { [ "$(sysctl -n net.core.somaxconn)" = 16384 ]; }
not value || die "the sysctl has this value without the policy, so this step proves nothing"
keep kubelet kubelet_process
keep watch systemctl show -P MainPID nodegate-watch.service

cp /etc/nodegate/policy.d/*.hcl /run/node.hcl
echo 'sysctl "net.core.somaxconn" { value = 16384 }' >>/run/node.hcl
nodegate lint /run/node.hcl
nodegate install --policy /run/node.hcl
not value || die "install changed the running kernel"
systemctl reload nodegate-watch.service
within 60 value
unchanged watch systemctl show -P MainPID nodegate-watch.service || die "watch was restarted"
unchanged kubelet kubelet_process || die "kubelet was restarted"

# kubelet's next start runs the gate of the new binary with the new policy.
systemctl restart kubelet.service
within 240 proven /usr/bin/nodegate
tr -d ' \n' </run/nodegate/report.json | grep -q '"name":"sysctl.net.core.somaxconn","verdict":"pass"' ||
	die "the gate did not require the new value"
