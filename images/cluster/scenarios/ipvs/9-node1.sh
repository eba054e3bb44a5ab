# Many audits while endpoints change, three beside each other: most of an audit is waiting.
audits() {
	while [ "$(cut -d. -f1 /proc/uptime)" -lt $end ]; do
		code=0
		/opt/nodegate audit --kubeconfig /etc/kubernetes/proxy.kubeconfig --node node1 --timeout 3m >/run/audit.$1 2>&1 || code=$?
		echo "$code" >>/run/audits.code
		if grep -q 'converged after' /run/audit.$1; then echo >>/run/audits.followed; fi
		[ $code = 0 ] || cat /run/audit.$1
	done
}
end=$(($(cut -d. -f1 /proc/uptime) + 270))
touch /run/audits.code /run/audits.followed
audits 1 & first=$!
audits 2 & second=$!
audits 3
wait $first $second
audits=$(wc -l </run/audits.code) unknown=$(grep -c '^3$' /run/audits.code || :) passed=$(grep -c '^0$' /run/audits.code || :)
wrong=$((audits - unknown - passed)) followed=$(wc -l </run/audits.followed)
echo "$audits audits while endpoints change: $wrong accuse, $unknown cannot tell, $followed followed a difference that passed"
[ $wrong = 0 ] && [ $audits -ge 9 ] && [ $followed -gt 0 ] || die "a healthy node is accused, or nothing changed"
not audit_says fail || die "watch accuses: $(/opt/nodegate status)"
