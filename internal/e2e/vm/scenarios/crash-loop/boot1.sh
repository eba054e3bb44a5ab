restarted() { [ "$(systemctl show --value -p NRestarts kubelet)" -ge "$1" ]; }
status() { nodegate status --format json | tr -d '\n' | grep "$@" >/dev/null; }
within 240 restarted 3
within 120 status 'kubelet.exit.*keeps exiting: exit status 3: failed to run Kubelet: an unknown reason'
reported() { nodegate status | grep -E '^fail +kubelet.exit +' >/dev/null; }
within 60 reported # between two exits the gate's own report is newer
journalctl -b -o cat -u kubelet | grep 'nodegate: kubelet.exit: .*kubelet exited: exit status 3: .*an unknown reason' || die "the gate does not report the first exit"
passed() { journalctl -b -o cat -u kubelet | grep 'nodegate: the node passed .* times in ' >/dev/null; }
within 240 passed
ln -sf /opt/vm/kubelet /opt/crash/kubelet
systemctl restart kubelet
within 240 status '"kubelet.exit", *"verdict": *"pass"'
quiet() { ! nodegate status | grep -E '^(fail|unknown|warn) +(kubelet|swap|cgroup)'; }
within 60 quiet # watch reports no fault of a kubelet that keeps running
