. /opt/vm/service.sh
within 120 started 1
not loaded br_netfilter || die "br_netfilter is loaded on a stock machine, so this scenario proves nothing"
make_service
silent $service_address || die "the Service answers without br_netfilter"
echo "br_netfilter not loaded: timed out"

modprobe br_netfilter
sysctl -qw net.bridge.bridge-nf-call-iptables=0
silent $service_address || die "the Service answers with bridge-nf-call-iptables=0"
echo "br_netfilter loaded, bridge-nf-call-iptables=0: timed out"

sysctl -qw net.bridge.bridge-nf-call-iptables=1
asks $service_address || die "no answer with bridge-nf-call-iptables=1, so the failures above have another cause"
echo "br_netfilter loaded, bridge-nf-call-iptables=1: answered"

started 2 || die "kubelet did not crash-loop on a stock machine"
/opt/nodegate install
