package replica

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/netns"
	"nodegate/internal/host/wire"
)

// ReadBridge captures the rules and settings of a namespace, with a new bridge in place of its links: the bridge has the settings of
// a new link, an address, and Pods on it.
func ReadBridge(ctx context.Context, n *netns.Namespace, name string, at netip.Prefix, pods ...netip.Addr) (*Capture, error) {
	const index, template, mtu = 1000, "default", 1500
	c := &Capture{Sysctls: map[string]string{}, Links: []Link{{Index: 1, Name: "lo", Up: true},
		{Index: index, Name: template, Kind: "bridge", MAC: net.HardwareAddr{0x0a, 0x6e, 0, 0, 1, 0}, MTU: mtu, Up: true, Carrier: true}}}
	err := n.Netlink(ctx, unix.NETLINK_ROUTE, func(s *wire.Conn) (err error) {
		if c.Rules, err = s.Dump(unix.RTM_GETRULE, make([]byte, unix.SizeofRtMsg)); err != nil {
			return fmt.Errorf("reading routing rules: %w", err)
		}
		c.readSysctls()
		c.readListeners()
		return c.readFilters(func([]string) map[string]bool { return nil })
	})
	if err != nil {
		return nil, fmt.Errorf("copying the node's rules: %w", err)
	}
	c.Listeners, c.Links[1].Name = nil, name
	for _, key := range linkSysctls {
		c.Sysctls[fmt.Sprintf(key, name)] = c.Sysctls[fmt.Sprintf(key, template)]
	}
	direct := routeHeader(family(at.Addr()), byte(at.Bits()), unix.RT_TABLE_MAIN, unix.RTN_UNICAST)
	direct[5], direct[6] = unix.RTPROT_KERNEL, unix.RT_SCOPE_LINK
	c.Routes = [][]byte{slices.Concat(direct, attribute(unix.RTA_DST, at.Masked().Addr().AsSlice()), number(unix.RTA_OIF, index))}
	c.Addresses = [][]byte{addressOf(index, at)}
	for i, pod := range pods {
		link := index + 1 + i
		c.Links = append(c.Links, Link{Index: link, Master: index, Name: fmt.Sprint(name, i), Kind: "veth", MTU: mtu, Up: true, Carrier: true})
		c.Neighbours = append(c.Neighbours, Neighbour{Link: link, Address: pod, MAC: net.HardwareAddr{0x0a, 0x6e, 0, 0, 0, byte(i)}})
	}
	return c, nil
}
