# Run many audits while endpoints change.
audits=0 wrong=0 unknown=0 followed=0
end=$(($(cut -d. -f1 /proc/uptime) + 270))
while [ "$(cut -d. -f1 /proc/uptime)" -lt $end ]; do
	code=0
	/opt/nodegate audit --kubeconfig /etc/kubernetes/proxy.kubeconfig --node node1 --timeout 3m >/run/audit.txt 2>/run/audit.err || code=$?
	audits=$((audits + 1))
	if grep -q 'converged after' /run/audit.txt; then followed=$((followed + 1)); fi
	case $code in
	0) ;;
	3) unknown=$((unknown + 1)); cat /run/audit.txt /run/audit.err ;;
	*) wrong=$((wrong + 1)); cat /run/audit.txt /run/audit.err ;;
	esac
done
echo "$audits audits while endpoints change: $wrong with false findings, $unknown unknown, $followed waited for a difference that passed"
[ $wrong = 0 ] && [ $audits -ge 3 ] && [ $followed -gt 0 ] || die "an audit reports a healthy node, or nothing changed"
not audit_says fail || die "watch reports a false finding: $(/opt/nodegate status)"
