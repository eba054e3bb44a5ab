first_start
saw 1
sysctl -qw kernel.panic=0 net.bridge.bridge-nf-call-iptables=0 net.ipv4.ip_forward=0
systemctl restart kubelet
within 60 started 2
saw 2

# What kops writes, and another's file that sorts after it.
echo 'net.ipv4.ip_forward = 0' >/etc/sysctl.d/99-k8s-general.conf
printf 'kernel.panic = 0\nnet.bridge.bridge-nf-call-iptables = 0\n' >/etc/sysctl.d/99-rival.conf
sysctl --system >/run/vm/sysctl-system
grep -q '99-k8s-general.conf' /run/vm/sysctl-system || die "sysctl --system did not read the rival's file"
right_now

# /etc/sysctl.conf is another matter: `sysctl --system` reads it last of all, whatever the names in sysctl.d. No file
# can win against it; the gate does, at kubelet's next start, and systemd at boot (it knows the file as 99-sysctl.conf).
echo 'kernel.panic = 0' >>/etc/sysctl.conf
sysctl --system >/run/vm/sysctl-system
echo "after sysctl --system with kernel.panic = 0 in /etc/sysctl.conf: kernel.panic is $(value kernel.panic)"
systemctl restart kubelet
within 60 started 3
saw 3
