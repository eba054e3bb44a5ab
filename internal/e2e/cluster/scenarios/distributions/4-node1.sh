[ "$(stat -f -c %T /sys/fs/cgroup)" = tmpfs ] || die "this is not cgroup v1"
within 240 held
within 120 named_only kubelet.cgroup-v1
exits 'configured to not run on a host using cgroup v1'
echo "cgroup v1: named, and kubelet exits with it"

cp /etc/kubernetes/kubelet.yaml /run/kubelet.yaml
echo 'failCgroupV1: false' >>/etc/kubernetes/kubelet.yaml
if grep -q ' - cgroup .*\<memory\>' /proc/self/mountinfo; then
	within 240 kubelet_runs
else # since 6.12.117, Debian 13's kernel mounts no controller for cgroup v1 that it was built without
	within 240 sh -c "journalctl -b --no-pager -o cat -u kubelet.service | grep -q 'nodegate: kubelet.exit: .*Cgroup subsystem not mounted'"
	echo "no memory controller for cgroup v1: kubelet exits, and the gate names it"
fi
cp /run/kubelet.yaml /etc/kubernetes/kubelet.yaml
