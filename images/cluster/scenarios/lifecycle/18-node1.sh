kubelet_began
[ ! -e /run/nodegate ] || die "nodegate has run"
dpkg -i /opt/releases/nodegate_1.0.1-1_amd64.deb
nodegate install
forget_cluster
