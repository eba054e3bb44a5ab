watch=nodegate-watch.service
restarted() { [ "$(systemctl show -P NRestarts kubelet)" -ge "$1" ]; }
look() { systemctl kill -s HUP --kill-who=main $watch; } # a round now, not in half a minute
status() { look && nodegate status | grep "$@"; }
within 240 restarted 3
within 60 systemctl is-active --quiet $watch
within 60 status -E '^fail +kubelet.crash-loop +.*exit status 3'
nodegate check --stage run --format json >/run/vm/report || :
grep -q 'a reason that no check knows' /run/vm/report || die "its last words are not in the report: $(cat /run/vm/report)"
within 120 restarted 11
ln -sf /opt/vm/kubelet /opt/vm/crash
systemctl restart kubelet
within 60 not status kubelet.crash-loop
