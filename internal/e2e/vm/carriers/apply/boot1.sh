. /opt/vm/carried.sh
within 120 settled
overlay
/opt/nodegate apply --policy /opt/carriers.hcl
carried
