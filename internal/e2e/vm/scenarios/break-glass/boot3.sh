first_start
accepted 1
not loaded br_netfilter || die "br_netfilter is loaded, so the test broke nothing"
