. /opt/vm/nodeup.sh
within 120 settled
nodeup kubelet
within 60 started 1
saw 1
