# A kops node before its first boot: without kubelet's unit, and with nodegate only on the server.
mkdir -p "$ROOT/opt/nodeup" "$ROOT/srv/www"
mv "$ROOT/lib/systemd/system/kubelet.service" "$ROOT/opt/nodeup/"
rm "$ROOT/etc/systemd/system/multi-user.target.wants/kubelet.service"
cp "$NODEGATE" "$ROOT/srv/www/nodegate"
"$NODEGATE" export kops --binary http://127.0.0.1:8080/nodegate --sha256 "$(sha256sum <"$NODEGATE" | cut -d' ' -f1)" --output "$ROOT/opt/nodeup/export.yaml"
go run ./nodeup "$ROOT/opt/nodeup/export.yaml" "$ROOT/opt/nodeup"
printf '#!/bin/sh\ntouch /root/wrong-one-ran\n' >"$ROOT/srv/www/wrong"
mv "$ROOT/srv/www/nodegate" "$ROOT/srv/www/right"
