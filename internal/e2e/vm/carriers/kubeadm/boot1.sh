. /opt/vm/carried.sh
within 120 settled
sh -eu /opt/bootstrap.sh
is net.ipv4.ip_forward 1 || die "kubeadm would be started before the node is right"
systemctl enable --now --no-block kubelet
first_start
saw 1
within 120 settled
overlay
within 60 overlay_done
carried
without_program 2
