audit_accuses default/server '1 of 4 endpoints in the rules are not in the API'
grep -q 'they take 25.0 % of new connections' /run/audit.txt || die "the fraction is another"
within 360 audit_says fail # it reads the rules again after 100 times what reading took, five minutes at most
/opt/nodegate status | grep -q 'default/\(server\|balanced\): .* they take 25.0 % of new connections' || die "watch does not name the Service and the fraction"
health=$(wget -S -O /dev/null http://127.0.0.1:10256/healthz 2>&1 || :)
echo "$health" | grep -q ' 200 OK' || die "kube-proxy's healthz does not say that all is well: $health"
nft delete table inet cut
within 300 audit_passes
within 300 audit_says pass
