. /opt/vm/carried.sh
first_start
saw 1
within 240 test -e /var/lib/cloud/instance/boot-finished
within 120 settled
systemctl is-enabled nodegate-apply.service nodegate-watch.service
overlay
within 60 overlay_done
carried
without_program 2
