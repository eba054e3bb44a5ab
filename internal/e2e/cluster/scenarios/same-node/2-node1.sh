not loaded br_netfilter || die "br_netfilter is loaded on a stock node, so this scenario proves nothing"
/opt/nodegate install
