within 120 held 1
throughout 25 held 1
reported br_netfilter
not loaded br_netfilter || die "br_netfilter is loaded, so the test broke nothing"
sh -eux /opt/held 2>&1
sh -eux /opt/mend
within 60 started 1
saw 1

# Prepare the second boot.
for file in $(find /lib/modules -name 'br_netfilter.ko*'); do
	mv "$file" /opt/
	dirname "$file" >/opt/br_netfilter.home
done
