first_start
not loaded br_netfilter || die "br_netfilter is loaded, so the test broke nothing"
reported br_netfilter
accepted 1
