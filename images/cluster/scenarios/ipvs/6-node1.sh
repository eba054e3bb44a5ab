passes() { /opt/nodegate audit --kubeconfig /etc/kubernetes/proxy.kubeconfig --node node1 --timeout 2m >/run/audit.txt 2>&1; }
# accuses SERVICE WORDS: an audit finds that, and fails.
accuses() {
	code=0
	passes || code=$?
	cat /run/audit.txt
	[ $code = 1 ] || die "an audit leaves with $code"
	grep -F -A 1 "($1)" /run/audit.txt | grep -qF "$2" || die "no finding about $1 says: $2"
}

accuses default/server '1 of 4 endpoints that this node sends connections to are not in the API'
grep -q 'they take 25.0 % of new connections' /run/audit.txt || die "the fraction is another"
within 360 audit_says fail # it reads the rules again after 100 times what reading took, five minutes at most
/opt/nodegate status | grep -q 'default/server: .* they take 25.0 % of new connections' || die "watch does not name the Service and the fraction"
health=$(wget -S -O /dev/null http://127.0.0.1:10256/healthz 2>&1 || :)
echo "$health" | grep -q ' 200 OK' || die "kube-proxy's healthz does not say that all is well: $health"
nft delete table inet cut
within 300 passes
within 300 audit_says pass
