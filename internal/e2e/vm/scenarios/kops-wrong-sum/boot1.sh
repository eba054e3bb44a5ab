. /opt/vm/nodeup.sh
within 120 settled
cp /srv/www/wrong /srv/www/nodegate
serve
nodeup kubelet
within 60 held 1
throughout 12 held 1
not test -e /usr/local/bin/nodegate || die "the wrong binary was installed"
cp /srv/www/right /srv/www/nodegate
within 60 started 1
saw 1
not test -e /root/wrong-one-ran || die "the wrong binary was run"
install -m 0755 /srv/www/wrong /usr/local/bin/nodegate # a new file, because watch runs the old one
