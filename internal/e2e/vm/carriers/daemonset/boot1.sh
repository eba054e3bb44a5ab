. /opt/vm/carried.sh
within 120 started 2
sh -eu /opt/pod.sh || { systemctl status --no-pager pod 'nodegate*' >&2; die "the init container fails"; }
stays() {
	newest=$(ls /run/vm/kubelet | sort -n | tail -n 1)
	judged "$newest" && [ "$(cat "/run/vm/kubelet/$newest/verdict")" = runs ]
}
within 60 stays
saw "$newest"
sh -eu /opt/pod.sh || die "the init container fails the second time"
overlay
within 60 overlay_done
carried
