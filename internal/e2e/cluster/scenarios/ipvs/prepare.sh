"$NODEGATE" install --root "$ROOT" --policy "$SCENARIO/policy.hcl"
unit=$ROOT/etc/systemd/system/kube-proxy.service
sed -i 's/--proxy-mode=iptables/--proxy-mode=ipvs --ipvs-strict-arp/' "$unit"
grep -q 'mode=ipvs' "$unit"
