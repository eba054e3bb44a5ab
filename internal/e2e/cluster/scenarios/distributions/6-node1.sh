within 240 kubelet_runs
[ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ] || die "this is not cgroup v2"
