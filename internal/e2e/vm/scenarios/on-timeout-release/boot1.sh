first_start
not loaded br_netfilter || die "br_netfilter is loaded: nothing was broken"
told br_netfilter
accepted 1
