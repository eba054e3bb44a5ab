within 120 held 1
throughout 25 held 1
told br_netfilter
not loaded br_netfilter || die "br_netfilter is loaded: nothing was broken"
mv /opt/br_netfilter.ko* "$(cat /opt/br_netfilter.home)/"
within 10 started 1
saw 1
