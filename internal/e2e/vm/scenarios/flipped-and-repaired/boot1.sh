first_start
saw 1
sysctl -qw kernel.panic=0 net.bridge.bridge-nf-call-iptables=0 net.ipv4.ip_forward=0
systemctl restart kubelet
within 60 started 2
saw 2

# A file that kops writes, and a file of another program that sorts after it.
echo 'net.ipv4.ip_forward = 0' >/etc/sysctl.d/99-k8s-general.conf
printf 'kernel.panic = 0\nnet.bridge.bridge-nf-call-iptables = 0\n' >/etc/sysctl.d/99-rival.conf
sysctl --system >/run/vm/sysctl-system
grep -q '99-k8s-general.conf' /run/vm/sysctl-system || die "sysctl --system did not read the other program's file"
right_now

# `sysctl --system` reads /etc/sysctl.conf after all files in sysctl.d, so no such file can override it. The gate corrects its
# values when kubelet starts next. So does systemd at boot, which reads the file as 99-sysctl.conf.
echo 'kernel.panic = 0' >>/etc/sysctl.conf
sysctl --system >/run/vm/sysctl-system
echo "after sysctl --system with kernel.panic = 0 in /etc/sysctl.conf: kernel.panic is $(value kernel.panic)"
systemctl restart kubelet
within 60 started 3
saw 3
