. /opt/vm/carried.sh
first_start
saw 1
within 120 settled
overlay
within 60 overlay_done
carried
without_program 2
