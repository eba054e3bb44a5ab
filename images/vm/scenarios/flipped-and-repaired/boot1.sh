first_start
saw 1
sysctl -qw kernel.panic=0 net.bridge.bridge-nf-call-iptables=0 net.ipv4.ip_forward=0
systemctl restart kubelet
within 30 started 2
saw 2

# What kops writes, and what a distribution ships under a name that sorts after it.
echo 'net.ipv4.ip_forward = 0' >/etc/sysctl.d/99-k8s-general.conf
printf 'kernel.panic = 0\nnet.bridge.bridge-nf-call-iptables = 0\n' >/etc/sysctl.d/99-sysctl.conf
sysctl --system >/run/vm/sysctl-system
grep -q '99-k8s-general.conf' /run/vm/sysctl-system || die "sysctl --system did not read the rival's file"
right_now
