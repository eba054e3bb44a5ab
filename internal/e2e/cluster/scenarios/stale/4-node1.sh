within 300 audit_says fail
/opt/nodegate status || :
said=$(/opt/nodegate status | sed -n 's|.*default/server: .* they get \([0-9.]*\) % of new connections.*|\1|p')
[ -n "$said" ] || die "watch does not report the Service and the fraction"
health=$(wget -S -O /dev/null http://127.0.0.1:10256/healthz 2>&1 || :)
echo "$health" | grep -q ' 200 OK' || die "kube-proxy's healthz does not return 200: $health"

to=$(iptables-save -t nat | sed -n 's|^-A KUBE-SERVICES -d \([0-9.]*\)/32 .*default/server cluster IP.*|\1:80|p')
/opt/nodegate probe service "$to" -n 2000 --format json >/run/probe.json || :
fails=$(sed -n 's/.*"fraction": \([0-9.]*\),.*/\1/p' /run/probe.json)
echo "audit says $said %, of 2,000 connections a fraction of $fails fails"
awk "BEGIN { off = 100 * $fails - $said; exit !(-3 < off && off < 3) }" || die "the fractions differ by more than 3 points: $(cat /run/probe.json)"

nft delete table inet cut
within 300 audit_says pass

for unit in kubelet containerd kube-proxy nodegate-watch; do
	echo "$unit has used $(($(systemctl show -P CPUUsageNSec "$unit.service") / 1000000000)) s of processor time"
done
