cat >"$ROOT/etc/fstab" <<'F'
proc  /proc proc  hidepid=2,gid=1                 0 0
tmpfs /tmp  tmpfs noexec,nosuid,nodev             0 0
/var  /var  none  bind,noexec,nosuid,nodev        0 0
F
rm "$ROOT/etc/apparmor.d/lsb_release" "$ROOT/etc/apparmor.d/nvidia_modprobe" # compiling them takes seconds
cat >"$ROOT/etc/apparmor.d/kubelet" <<'F'
abi <abi/3.0>,
include <tunables/global>
profile kubelet /opt/vm/kubelet flags=(attach_disconnected) {
  include <abstractions/base>
  capability,
  file,
  deny /etc/shadow r,
}
F
# The default profile of containerd's containers.
cat >"$ROOT/etc/apparmor.d/cri-containerd" <<'F'
abi <abi/3.0>,
include <tunables/global>
profile cri-containerd.apparmor.d flags=(attach_disconnected,mediate_deleted) {
  include <abstractions/base>
  network,
  capability,
  file,
  umount,
  deny @{PROC}/* w,
  deny @{PROC}/{[^1-9],[^1-9][^0-9],[^1-9s][^0-9y][^0-9s],[^1-9][^0-9][^0-9][^0-9]*}/** w,
  deny @{PROC}/sys/[^k]** w,
  deny @{PROC}/sys/kernel/{?,??,[^s][^h][^m]**} w,
  deny @{PROC}/sysrq-trigger rwklx,
  deny @{PROC}/kcore rwklx,
  deny mount,
  deny /sys/[^f]*/** wklx,
  deny /sys/f[^s]*/** wklx,
  deny /sys/firmware/** rwklx,
  deny /sys/kernel/security/** rwklx,
  ptrace (trace,read,tracedby,readby) peer=cri-containerd.apparmor.d,
}
F
# A kops node's files, for nodegate-fetch.
mkdir -p "$ROOT/opt/nodeup" "$ROOT/srv/www"
cp "$NODEGATE" "$ROOT/srv/www/nodegate"
cp "$ROOT/lib/systemd/system/kubelet.service" "$ROOT/opt/nodeup/"
"$NODEGATE" export kops --binary http://127.0.0.1:8080/nodegate --sha256 "$(sha256sum <"$NODEGATE" | cut -d' ' -f1)" --output "$ROOT/opt/nodeup/export.yaml"
go run ./nodeup "$ROOT/opt/nodeup/export.yaml" "$ROOT/opt/nodeup"
install -m 0755 "$NODEGATE" "$ROOT/opt/nodegate"
cp "$SCENARIO/policy.hcl" "$ROOT/opt/policy.hcl"
"$NODEGATE" install --root "$ROOT" --policy "$SCENARIO/policy.hcl"
# A module whose signature is gone: the last 28 bytes mark it.
module=$(find "$ROOT/lib/modules" -name br_netfilter.ko)
cp "$module" "$ROOT/root/signed.ko"
truncate -s -28 "$module"
