config=/etc/kubernetes/kubelet.yaml
drop=/run/systemd/system/kubelet.service.d

within 240 kubelet_runs
systemctl stop kubelet.service
cp $config /run/whole.yaml
command=$(sed -n '/^ExecStart/,/[^\\]$/p' /etc/systemd/system/kubelet.service | tr -d '\\\n')
for check in swap kubelet.runtime kubelet.ports kubelet.config kubelet.values kubelet.root-dir; do
	echo "check \"$check\" {}"
done >/run/policy.hcl
echo 'check "kubelet.protect-kernel-defaults" { severity = "block" }' >>/run/policy.hcl

# named: print the checks that would hold kubelet.
named() { /opt/nodegate check --stage boot --policy /run/policy.hcl | awk '$1 == "fail" || $1 == "unknown" { print $2 }'; }

log() { journalctl --no-pager -o cat "_SYSTEMD_INVOCATION_ID=$(systemctl show -P InvocationID kubelet.service)"; }
exited() { [ "$(systemctl show -P ActiveState kubelet.service)" = failed ]; }
started() { log | grep -q 'Started kubelet' || exited; }

# flags FLAGS: add flags to kubelet, and start it once.
flags() {
	mkdir -p $drop
	printf '[Service]\nExecStart=\n%s %s\nRestart=no\n' "$command" "$1" >$drop/cause.conf
	systemctl daemon-reload
}

# cause CHECK WORDS BREAK MEND [FLAGS]: break the node with BREAK and FLAGS. First CHECK, if not empty, must fail, then kubelet must exit with
# WORDS in its log.
cause() {
	eval "$3"
	rm -rf $drop
	flags "${5:-}"
	names=$(named)
	[ "$names" = "$1" ] || die "$3 ${5:-}: nodegate reports '$names', want $1"
	systemctl start kubelet.service
	within 120 exited
	log | grep -q -e "$2" || die "$3 ${5:-}: kubelet's log does not contain '$2': $(log | tail -n 5)"
	eval "$4"
	cp /run/whole.yaml $config
	rm -rf $drop
	flags ""
	systemctl reset-failed kubelet.service
	names=$(named)
	[ -z "$names" ] || die "$4: after mending, nodegate reports '$names'"
	systemctl start kubelet.service
	within 120 started
	sleep 3 # kubelet may still exit after this line
	kubelet_runs || die "$4: after mending, kubelet exits: $(log | tail -n 5)"
	systemctl stop kubelet.service
	echo "named and mended: $1: $3 ${5:-}"
}

cause kubelet.config 'failed to read kubelet config file' "rm $config" :
cause kubelet.config 'was empty' ": >$config" :
cause kubelet.config 'failed to decode' "echo 'a: [' >$config" :
cause kubelet.config 'no kind' "sed -i s/v1beta1/v1/ $config" :
cause kubelet.config 'Kind. is missing' "sed -i /^kind/d $config" :
cause kubelet.config 'lstat /etc/none' : : --config-dir=/etc/none
cause kubelet.values 'unknown flag' : : --pod-infra-container-image=pause
cause kubelet.values 'unknown flag' : : --container-runtime=remote
cause kubelet.values 'node-role.kubernetes.io' : : --node-labels=node-role.kubernetes.io/worker=

dd if=/dev/zero of=/swapfile bs=1M count=16 status=none
chmod 600 /swapfile
mkswap /swapfile
cause swap 'running with swap on is not supported' "swapon /swapfile; sed -i 's/failSwapOn: false/failSwapOn: true/' $config" 'swapoff /swapfile'

panic=$(cat /proc/sys/kernel/panic)
cause kubelet.protect-kernel-defaults 'invalid kernel flag: kernel/panic' \
	"sysctl -q -w kernel.panic=7; echo 'protectKernelDefaults: true' >>$config" "sysctl -q -w kernel.panic=$panic"
cause '' 'open /dev/kmsg' 'rm /dev/kmsg' 'mknod -m 644 /dev/kmsg c 1 11'
cause kubelet.root-dir 'read-only file system' 'mount -t tmpfs -o ro tmpfs /var/lib/kubelet' 'umount /var/lib/kubelet'
cause kubelet.runtime 'validate CRI v1 runtime API' 'systemctl mask --runtime --now containerd.service' \
	'systemctl unmask --runtime containerd.service; systemctl start containerd.service'
cp /etc/containerd/config.toml /run/containerd.toml
cause kubelet.runtime 'validate CRI v1 runtime API' \
	"printf 'version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n' >/etc/containerd/config.toml; systemctl restart containerd.service" \
	'cp /run/containerd.toml /etc/containerd/config.toml; systemctl restart containerd.service'
cause '' 'unable to load bootstrap kubeconfig' \
	'mkdir /run/away; mv /var/lib/kubelet/kubeconfig /etc/kubernetes/bootstrap.kubeconfig /run/away' \
	'mv /run/away/kubeconfig /var/lib/kubelet; mv /run/away/bootstrap.kubeconfig /etc/kubernetes'
cause kubelet.ports 'address already in use' \
	'systemd-run -q --unit=taker /opt/nodegate watch --policy /run/policy.hcl --listen 127.0.0.1:10250; sleep 5' 'systemctl stop taker'
