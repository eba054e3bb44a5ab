# The file exists from the start.
first_start
accepted 1
not loaded br_netfilter || die "br_netfilter is loaded, so the test broke nothing"
rm /etc/nodegate/disabled
