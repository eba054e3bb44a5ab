"$NODEGATE" install --root "$ROOT"
mkdir -p "$ROOT/etc/systemd/system/kubelet.service.d" "$ROOT/opt/crash" "$ROOT/var/lib/kubelet"
cat >"$ROOT/etc/systemd/system/kubelet.service.d/20-crash.conf" <<'UNIT'
[Service]
ExecStart=
ExecStart=/opt/crash/kubelet --config=/var/lib/kubelet/config.yaml
UNIT
cat >"$ROOT/var/lib/kubelet/config.yaml" <<'CONFIG'
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {webhook: {enabled: false}} # a kubelet without --kubeconfig cannot use the API server
authorization: {mode: AlwaysAllow}
CONFIG
cat >"$ROOT/opt/crash/kubelet" <<'PROGRAM'
#!/bin/sh
echo 'E1121 12:00:00.000000       1 run.go:72] "command failed" err="failed to run Kubelet: an unknown reason"' >&2
echo 'I1121 12:00:00.000001       1 last words that are no error' >&2
exit 3
PROGRAM
chmod 755 "$ROOT/opt/crash/kubelet"
