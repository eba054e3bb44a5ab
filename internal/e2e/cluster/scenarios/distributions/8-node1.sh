[ "$(systemctl show -P NRestarts kubelet.service)" = 0 ] || die "kubelet was restarted"
/opt/nodegate check --stage run || die "nodegate does not pass a node that is Ready"
