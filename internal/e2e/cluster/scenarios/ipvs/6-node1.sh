audit_accuses default/server '1 of 4 endpoints that this node sends connections to are not in the API'
grep -q 'they take 25.0 % of new connections' /run/audit.txt || die "audit reports another fraction"
within 360 audit_says fail # watch waits 100 times the duration of a reading before the next one, at most five minutes
/opt/nodegate status | grep -q 'default/\(server\|balanced\): .* they take 25.0 % of new connections' || die "watch does not report the Service and the fraction"
health=$(wget -S -O /dev/null http://127.0.0.1:10256/healthz 2>&1 || :)
echo "$health" | grep -q ' 200 OK' || die "kube-proxy's healthz does not return 200: $health"
nft delete table inet cut
within 300 audit_passes
within 300 audit_says pass
