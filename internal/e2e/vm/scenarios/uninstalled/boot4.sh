. /opt/vm/machine.sh
within 120 judged 1
[ "$(cat /run/vm/kubelet/1/verdict)" != runs ] || die "kubelet finds its values, so uninstall left something"
picture 4
picture_tree 4
same_tree 2 4
same_modules 2 4
same_sysctls 1 2 4
