[ "$(systemctl show -P NRestarts kubelet.service)" = 0 ] || die "kubelet was restarted"
/opt/nodegate check --stage run || die "nodegate check does not pass on a Ready node"
