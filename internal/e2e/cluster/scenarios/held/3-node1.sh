rm /etc/modprobe.d/rival.conf
within 120 kubelet_runs
loaded br_netfilter || die "kubelet runs without br_netfilter"

# A ring of a real network card is resized, and gets its old size back.
link=$(ip route show default | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1)
link=${link:-$(ip -brief link | awk '$1 != "lo" { print $1; exit }')}
cat >/root/ring.hcl <<P
link "uplink" {
  match { name = "$link" }
  ring   = { rx = 128 }
  reason = "A test."
}
P
ring() { ethtool -g "$link" | sed -n '/Current/,$ s/^RX:[[:space:]]*//p'; }
before=$(ring)
/opt/nodegate plan --policy /root/ring.hcl | grep 'ring rx: .* -> 128 (may reset the link' || die "plan: $(/opt/nodegate plan --policy /root/ring.hcl)"
/opt/nodegate apply --policy /root/ring.hcl || die "apply"
[ "$(ring)" = 128 ] || die "the ring has $(ring)"
systemctl stop nodegate-watch.service # or revert refuses
/opt/nodegate revert --dry-run | grep "restore  *$link ring rx  *128 -> $before" || die "revert: $(/opt/nodegate revert --dry-run)"
/opt/nodegate revert
[ "$(ring)" = "$before" ] || die "revert left $(ring), was $before"
systemctl start nodegate-watch.service
