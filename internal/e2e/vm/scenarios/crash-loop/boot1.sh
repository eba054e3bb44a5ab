restarted() { [ "$(systemctl show --value -p NRestarts kubelet)" -ge "$1" ]; }
status() { nodegate status --format json | tr -d '\n' | grep "$@" >/dev/null; }
within 240 restarted 3
within 120 status 'kubelet.crash-loop.*keeps restarting: exit status 3.*an unknown reason'
nodegate status | grep -E '^fail +kubelet.crash-loop +' || die "status does not report it"
within 120 restarted 11
ln -sf /opt/vm/kubelet /opt/crash/kubelet
systemctl restart kubelet
within 240 status '"kubelet.crash-loop", *"verdict": *"pass"'
nodegate status | grep -E '^(fail|unknown|warn) +(kubelet|swap|cgroup)' && die "watch reports a fault of a kubelet that keeps running" || :
