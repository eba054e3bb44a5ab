. /etc/os-release
echo "Debian $(cat /etc/debian_version), kernel $(uname -r), $(systemctl --version | head -n 1), $(containerd --version)"
if [ "$VERSION_ID" = 11 ]; then
	within 240 held
	sleep 15
	held || die "kubelet is no longer held"
	named_only kubelet.runtime || die "nodegate reports '$(named)'"
	exits 'validate CRI v1 runtime API'
	echo "containerd without CRI v1: named, and kubelet exits with it"
	systemctl stop containerd.service
	cp /opt/new/* /usr/bin/
	systemctl start containerd.service
	containerd --version
fi
within 240 kubelet_runs
