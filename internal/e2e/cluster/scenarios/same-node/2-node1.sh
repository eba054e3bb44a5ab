not loaded br_netfilter || die "br_netfilter is loaded on a stock node: this scenario proves nothing"
/opt/nodegate install
