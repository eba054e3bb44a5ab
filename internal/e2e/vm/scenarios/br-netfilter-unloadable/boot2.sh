within 120 held 1
throughout 25 held 1
reported br_netfilter
not loaded br_netfilter || die "br_netfilter is loaded, so the test broke nothing"
mv /opt/br_netfilter.ko* "$(cat /opt/br_netfilter.home)/"
within 60 started 1
saw 1
