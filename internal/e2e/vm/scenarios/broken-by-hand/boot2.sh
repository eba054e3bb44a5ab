# This kernel runs without IPv6.
first_start
within 120 settled
systemctl stop nodegate-watch.service
echo 65536 >/sys/module/nf_conntrack/parameters/hashsize
no_mistakes
