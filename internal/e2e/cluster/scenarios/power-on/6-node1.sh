kubelet_began
[ ! -e /run/nodegate ] || die "nodegate has run"
/opt/nodegate install
forget_cluster
