package datapath

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"nodegate/internal/host"
	"nodegate/internal/host/netns"
)

// TestScenarioDoubleSNAT: the old form of KUBE-POSTROUTING leaves the mark on the packet, and the tunnel's outer packet inherits it, so
// the outer UDP is translated a second time. Without the kernel's fix, and with UDPCSum off and tx-checksum-ip-generic on, its checksum is
// then wrong. The new form clears the mark first. The kernel that runs this test may have the fix, so the test checks only the double
// translation and the offload.
func TestScenarioDoubleSNAT(t *testing.T) {
	const masquerade = "-j MASQUERADE --random-fully"
	for _, c := range []struct {
		name  string
		rules []string
		outer bool // the outer UDP is translated
	}{
		{"old form", []string{"-A KUBE-POSTROUTING -m mark --mark 0x4000/0x4000 " + masquerade}, true},
		{"new form", []string{
			"-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
			"-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0",
			"-A KUBE-POSTROUTING " + masquerade,
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			near, far := newNetns(t), newNetns(t)
			addLink(t, near, "eth0", "192.0.2.1/24", far, "eth0", "192.0.2.2/24")
			runIn(t, near, "ip", "route", "add", "default", "via", "192.0.2.2")
			addVXLAN(t, near, "192.0.2.2", "203.0.113.1/24")
			addVXLAN(t, far, "192.0.2.1", "203.0.113.2/24")
			for _, rule := range append([]string{
				"-N KUBE-SERVICES", "-N KUBE-MARK-MASQ", "-N KUBE-POSTROUTING",
				"-A OUTPUT -j KUBE-SERVICES",
				"-A POSTROUTING -j KUBE-POSTROUTING",
				"-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
				"-A KUBE-SERVICES -d 198.51.100.10 -p tcp --dport 80 -j KUBE-MARK-MASQ",
				"-A KUBE-SERVICES -d 198.51.100.10 -p tcp --dport 80 -j DNAT --to-destination 203.0.113.2:80",
			}, c.rules...) {
				runIn(t, near, "iptables", append([]string{"-t", "nat"}, strings.Fields(rule)...)...)
			}
			conn := connect(t, near, far)
			echo(t, conn, true)

			tcp, udp := countTranslations(t, near)
			if tcp != 1 || (udp > 0) != c.outer {
				t.Errorf("source translations: %d of the inner TCP, %d of the outer UDP", tcp, udp)
			}
			rules := runIn(t, near, "iptables", "-t", "nat", "-S", "KUBE-POSTROUTING", "-v")
			matched := map[bool]string{true: "-c 2 ", false: "-c 1 "}[c.outer] // also the outer UDP
			for rule := range strings.Lines(rules) {
				if strings.Contains(rule, "MASQUERADE") && !strings.Contains(rule, matched) {
					t.Errorf("want %sof %s", matched, rule)
				}
			}
			feature := readOffload(t, near)
			t.Logf("tx-checksum-ip-generic of vx0: %s; %d translations of the outer UDP\n%s", feature, udp, rules)
			if !feature.Available || !feature.Active {
				t.Errorf("tx-checksum-ip-generic of a new vxlan link: %s", feature)
			}
			applyPolicy(t, near, `link "vxlan" {
			  match { kind = "vxlan" }
			  offload = { tx-checksum-ip-generic = false }
			}`)
			if feature := readOffload(t, near); feature.Active {
				t.Errorf("tx-checksum-ip-generic after apply: %s", feature)
			}
			echo(t, conn, true)
		})
	}
}

// addVXLAN adds a tunnel to one other node without outer checksums, as flannel does.
func addVXLAN(t testing.TB, n *netns.Namespace, remote, addr string) {
	t.Helper()
	runIn(t, n, "ip", "link", "add", "vx0", "type", "vxlan", "id", "1", "dev", "eth0", "dstport", "8472", "remote", remote)
	runIn(t, n, "ip", "addr", "add", addr, "dev", "vx0")
	runIn(t, n, "ip", "link", "set", "vx0", "up")
}

// countTranslations counts the flows with a translated source: their replies go to another address than the original source.
func countTranslations(t testing.TB, n *netns.Namespace) (tcp, udp int) {
	t.Helper()
	must(t, n.Do(deadline(t), func() error {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.FAMILY_V4)
		if err != nil {
			return fmt.Errorf("listing conntrack: %w", err)
		}
		for _, f := range flows {
			if f.Forward.SrcIP.Equal(f.Reverse.DstIP) && f.Forward.SrcPort == f.Reverse.DstPort {
				continue
			}
			switch {
			case f.Forward.Protocol == protoTCP:
				tcp++
			case f.Forward.Protocol == protoUDP && f.Forward.DstPort == 8472:
				udp++
			}
		}
		return nil
	}))
	return tcp, udp
}

// readOffload returns tx-checksum-ip-generic of vx0.
func readOffload(t testing.TB, n *netns.Namespace) host.Feature {
	t.Helper()
	var features map[string]host.Feature
	must(t, n.Do(deadline(t), func() error {
		h, err := host.Open("/")
		if err == nil {
			features, err = h.Links.Features(deadline(t), "vx0")
		}
		return err
	}))
	return features["tx-checksum-ip-generic"]
}
