. "$SCENARIO/../../carriers_prepare.sh"
install -D -m 0755 "$NODEGATE" "$ROOT/opt/image/nodegate"
"$NODEGATE" export daemonset --policy "$policy" --image ghcr.io/example/nodegate@sha256:01ba4719c80b6fe911b091a7c05124b64eeece964e09c058ef8f9805daca546b --output "$ROOT/opt/base"
go run ./pod "$ROOT/opt/base" /opt/image /opt/base/policy.d >"$ROOT/opt/pod.sh"
