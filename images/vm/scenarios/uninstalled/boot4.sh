. /opt/vm/machine.sh
within 120 started 1
picture 4
same_tree 2 4
same_modules 2 4
same_sysctls 1 2 4
not started 1 || [ "$(cat /run/vm/kubelet/1/verdict)" != runs ] || die "kubelet runs as if nodegate were there"
