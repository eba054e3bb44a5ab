. /opt/vm/carried.sh
within 120 settled
sh -eu /opt/bootstrap.sh
systemctl enable --now --no-block kubelet
first_start
saw 1
within 120 settled
overlay
within 60 overlay_done
carried
