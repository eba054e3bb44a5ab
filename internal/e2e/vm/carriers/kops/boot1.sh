. /opt/vm/carried.sh
. /opt/vm/nodeup.sh
within 120 settled
nodeup hooks
first_start
saw 1
overlay
within 60 overlay_done
carried
without_program 2
