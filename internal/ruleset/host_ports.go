package ruleset

import (
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// HostPort is a port of the node that a CNI plugin, portmap, leads to a Pod.
type HostPort struct {
	Protocol uint8
	At       netip.AddrPort // unspecified: at each address of the node
	To       netip.AddrPort
}

// HostPorts returns the host ports in portmap's chains, also in those to which nothing leads.
func HostPorts(sets []*Set) (list []HostPort) {
	for _, t := range Tables(sets, "nat") {
		for _, c := range t.Chains {
			if !strings.HasPrefix(c.Name, "CNI-DN-") {
				continue
			}
			for r := range t.Rules(c.Name) {
				protocol, known := map[string]uint8{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP}[r.Protocol]
				at := netip.IPv4Unspecified()
				if of, err := netip.ParsePrefix(r.Destination); err == nil {
					at = of.Addr()
				}
				port, err := strconv.ParseUint(r.Port, 10, 16)
				if to, err2 := netip.ParseAddrPort(r.To); r.Target == "DNAT" && known && err == nil && err2 == nil {
					list = append(list, HostPort{Protocol: protocol, At: netip.AddrPortFrom(at, uint16(port)), To: to})
				}
			}
		}
	}
	return list
}
