. /opt/vm/carried.sh
first_start
within 120 settled
overlay
within 60 overlay_done
carried
