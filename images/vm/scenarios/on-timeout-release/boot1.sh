first_start
not loaded br_netfilter || die "br_netfilter is loaded: nothing was broken"
told br_netfilter
[ "$(cat /run/vm/kubelet/1/verdict)" = runs ] || die "$(cat /run/vm/kubelet/1/verdict)"
