package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/netns"
	"nodegate/internal/host/wire"
)

// Link is a link of the node, as far as packets notice it.
type Link struct {
	Index, Master int
	Lower         int // the link below a macvlan
	Group         int
	Name, Kind    string
	MAC           net.HardwareAddr
	MTU           int
	Up, Carrier   bool
	NoARP         bool
	Data          []byte // IFLA_INFO_DATA
	SlaveKind     string
	SlaveData     []byte
	EBPF          bool // a program of eBPF sees its packets
}

// Neighbour is an entry of the neighbour table or of a bridge's forwarding table.
type Neighbour struct {
	Link      int
	Address   netip.Addr // not valid in a forwarding table
	MAC       net.HardwareAddr
	Permanent bool
	Bridge    bool
}

// maxRoutes bounds the routes of a node: a router of the internet has a million.
const maxRoutes = 20_000

const (
	sizeofNhmsg = 8  // struct nhmsg of include/uapi/linux/nexthop.h
	rtaNexthop  = 30 // RTA_NH_ID of include/uapi/linux/rtnetlink.h
)

// Attributes of include/uapi/linux/if_link.h.
const (
	infoKind      = 1
	infoData      = 2
	infoSlaveKind = 4
	infoSlaveData = 5
)

func (c *Capture) readNetwork(s *wire.Conn) error {
	links, err := s.Dump(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg))
	if err != nil {
		return fmt.Errorf("listing links: %w", err)
	}
	for _, m := range links {
		if len(m) < unix.SizeofIfInfomsg {
			continue
		}
		a := attributes(m[unix.SizeofIfInfomsg:], unix.IFLA_XDP)
		info := attributes(a[unix.IFLA_LINKINFO], infoSlaveData)
		flags := binary.NativeEndian.Uint32(m[8:])
		c.Links = append(c.Links, Link{Index: intOf(m[4:8]), Master: intOf(a[unix.IFLA_MASTER]), Group: intOf(a[unix.IFLA_GROUP]),
			Name: name(a[unix.IFLA_IFNAME]), Kind: name(info[infoKind]), MAC: a[unix.IFLA_ADDRESS], MTU: intOf(a[unix.IFLA_MTU]),
			Up: flags&unix.IFF_UP != 0, Carrier: flags&unix.IFF_LOWER_UP != 0, NoARP: flags&unix.IFF_NOARP != 0,
			Data: info[infoData], Lower: intOf(a[unix.IFLA_LINK]), SlaveKind: name(info[infoSlaveKind]), SlaveData: info[infoSlaveData],
			EBPF: len(attributes(a[unix.IFLA_XDP], unix.IFLA_XDP_PROG_ID)[unix.IFLA_XDP_PROG_ID]) > 0})
	}
	for _, one := range []struct {
		to      *[][]byte
		request uint16
		head    int
	}{{&c.Addresses, unix.RTM_GETADDR, unix.SizeofIfAddrmsg}, {&c.Routes, unix.RTM_GETROUTE, unix.SizeofRtMsg},
		{&c.Rules, unix.RTM_GETRULE, unix.SizeofRtMsg}, {&c.Nexthops, unix.RTM_GETNEXTHOP, sizeofNhmsg}} {
		if *one.to, err = s.Dump(one.request, make([]byte, one.head)); err != nil && one.request != unix.RTM_GETNEXTHOP { // before 5.3
			return fmt.Errorf("reading addresses, routes and routing rules: %w", err)
		}
	}
	if len(c.Routes) > maxRoutes {
		return fmt.Errorf("the node has %d routes; at most %d are copied", len(c.Routes), maxRoutes)
	}
	c.addRoutingParts()
	for _, family := range []byte{unix.AF_UNSPEC, unix.AF_BRIDGE} {
		head := make([]byte, unix.SizeofNdMsg)
		head[0] = family
		all, err := s.Dump(unix.RTM_GETNEIGH, head)
		if err != nil {
			return fmt.Errorf("reading neighbours: %w", err)
		}
		for _, m := range all {
			if len(m) < unix.SizeofNdMsg {
				continue
			}
			a, state := attributes(m[unix.SizeofNdMsg:], unix.NDA_PROBES), binary.NativeEndian.Uint16(m[8:])
			one := Neighbour{Link: intOf(m[4:8]), MAC: a[unix.NDA_LLADDR], Bridge: m[0] == unix.AF_BRIDGE,
				Permanent: state&unix.NUD_PERMANENT != 0}
			one.Address, _ = netip.AddrFromSlice(a[unix.NDA_DST])
			if !one.Bridge && state&unix.NUD_NOARP != 0 {
				continue // of a link without addresses of hardware; in a bridge: a static entry
			}
			silent := state&unix.NUD_FAILED != 0 || state&unix.NUD_INCOMPLETE != 0 && intOf(a[unix.NDA_PROBES]) > 1
			if silent {
				c.Silent = append(c.Silent, one.Address)
			}
			if l := c.link(one.Link); silent && l != nil && (slices.Contains(c.gateways(l.Index), one.Address) ||
				c.isUplink(l) && one.Address.IsValid() && !c.hasRange(l.Index, one.Address)) { // by a route without a gateway
				c.Parts = append(c.Parts, Part{Kind: PartNextHop, Family: m[0], Table: l.Name, To: one.Address.String(), Message: m})
			}
			if len(one.MAC) == 6 && (one.Bridge || one.Address.IsValid()) {
				c.Neighbours = append(c.Neighbours, one)
			}
		}
	}
	return nil
}

// addRoutingParts makes a part of each routing rule that is not the kernel's own, and of each route but the local table's.
func (c *Capture) addRoutingParts() {
	for _, m := range c.Rules {
		a := attributes(m[unix.SizeofRtMsg:], unix.RTA_TABLE)
		const priority = 6 // FRA_PRIORITY
		if p := intOf(a[priority]); p != 0 && p < 32766 {
			c.Parts = append(c.Parts, Part{Kind: PartRoutingRule, Family: m[0], Priority: p, Table: routeTable(m, a), Message: m})
		}
	}
	for _, m := range c.Routes {
		a := attributes(m[unix.SizeofRtMsg:], unix.RTA_TABLE)
		if table := routeTable(m, a); table != "255" && m[5] != unix.RTPROT_KERNEL {
			to := "default"
			if address, ok := netip.AddrFromSlice(a[unix.RTA_DST]); ok {
				to = netip.PrefixFrom(address, int(m[1])).String()
			}
			c.Parts = append(c.Parts, Part{Kind: PartRoute, Family: m[0], Table: table, To: to, Message: m})
		}
	}
}

func routeTable(m []byte, a [][]byte) string {
	if table := intOf(a[unix.RTA_TABLE]); table != 0 {
		return strconv.Itoa(table)
	}
	return strconv.Itoa(int(m[4]))
}

// Sysctls that decide about packets: of the namespace, and of each link in each family.
var (
	sysctls = []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/bridge/bridge-nf-call-iptables",
		"net/bridge/bridge-nf-call-ip6tables", "net/bridge/bridge-nf-call-arptables", "net/bridge/bridge-nf-filter-vlan-tagged",
		"net/bridge/bridge-nf-pass-vlan-input-dev", "net/netfilter/nf_conntrack_tcp_be_liberal", "net/netfilter/nf_conntrack_tcp_loose",
		"net/netfilter/nf_conntrack_checksum", "net/ipv4/ip_default_ttl", "net/ipv4/fwmark_reflect", "net/ipv4/tcp_fwmark_accept",
		"net/ipv4/tcp_l3mdev_accept", "net/ipv4/udp_l3mdev_accept", "net/ipv4/fib_multipath_hash_policy", "net/ipv4/tcp_ecn",
		"net/ipv4/ip_local_port_range", "net/ipv4/ip_nonlocal_bind", "net/ipv6/fib_multipath_hash_policy"}
	linkSysctls = []string{"net/ipv4/conf/%s/forwarding", "net/ipv4/conf/%s/rp_filter", "net/ipv4/conf/%s/proxy_arp",
		"net/ipv4/conf/%s/route_localnet", "net/ipv4/conf/%s/accept_local", "net/ipv4/conf/%s/src_valid_mark", "net/ipv4/conf/%s/arp_ignore",
		"net/ipv4/conf/%s/arp_filter", "net/ipv4/conf/%s/proxy_arp_pvlan", "net/ipv4/conf/%s/ignore_routes_with_linkdown",
		"net/ipv6/conf/%s/disable_ipv6", "net/ipv6/conf/%s/forwarding", "net/ipv6/conf/%s/proxy_ndp"}
)

func (c *Capture) readSysctls() {
	keys := slices.Clone(sysctls)
	for _, key := range linkSysctls {
		keys = append(keys, fmt.Sprintf(key, "all"))
		for i := range c.Links {
			keys = append(keys, fmt.Sprintf(key, c.Links[i].Name))
		}
	}
	for _, key := range keys {
		if b, err := os.ReadFile("/proc/sys/" + key); err == nil { // a kernel may lack it
			c.Sysctls[key] = strings.TrimSpace(string(b))
		}
	}
	c.addSysctl(unix.AF_INET, sysctls[0], "0", "1")
	c.addSysctl(unix.AF_INET6, sysctls[1], "0", "1")
	c.addSysctl(unix.AF_INET, sysctls[2], "0", "1")
	names := []string{"all"}
	for i := range c.Links {
		names = append(names, c.Links[i].Name)
	}
	for _, name := range names {
		if c.Sysctls[sysctls[0]] == "1" { // which sets all of them
			c.addSysctl(unix.AF_INET, fmt.Sprintf(linkSysctls[0], name), "0", "1")
		}
		c.addSysctl(unix.AF_INET, fmt.Sprintf(linkSysctls[1], name), "1", "2")
	}
}

// addSysctl makes a part of a sysctl that has a value with which packets may be lost. Its name is in the form of sysctl(8), which writes
// the dot of a link as a slash.
func (c *Capture) addSysctl(family byte, key, lost, passes string) {
	if c.Sysctls[key] == lost {
		c.Parts = append(c.Parts, Part{Kind: PartSysctl, Family: family,
			Table: strings.NewReplacer("/", ".", ".", "/").Replace(key), To: passes, Message: []byte(key)})
	}
}

// most bounds the stand-ins for links of single Pods that no flow uses.
const most = 32

// isCopied reports whether a link gets a stand-in even if no flow uses it.
func (c *Capture) isCopied(l *Link) bool {
	switch {
	case l.SlaveKind != "" && l.SlaveKind != "bridge" && l.SlaveKind != "vrf":
		return false // of a bond: the packets come in by the bond
	case len(c.Links) <= most || l.Kind != "veth":
		return true
	}
	return slices.ContainsFunc(c.Addresses, func(m []byte) bool { return intOf(m[4:8]) == l.Index && m[3] != unix.RT_SCOPE_LINK })
}

// readListeners reads where programs of the node listen, and the queues from which they take packets.
func (c *Capture) readListeners() {
	for file, protocol := range map[string]uint8{"tcp": unix.IPPROTO_TCP, "tcp6": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP,
		"udp6": unix.IPPROTO_UDP} {
		b, err := os.ReadFile("/proc/thread-self/net/" + file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			continue
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 4 || f[3] != "0A" && protocol == unix.IPPROTO_TCP || f[3] != "07" && protocol == unix.IPPROTO_UDP {
				continue
			}
			if at, ok := netns.KernelAddress(f[1]); ok {
				c.Listeners = append(c.Listeners, Listener{Protocol: protocol, At: at})
			}
		}
	}
	b, _ := os.ReadFile("/proc/thread-self/net/netfilter/nfnetlink_queue") // missing until the module is loaded
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 0 {
			if n, err := strconv.ParseUint(f[0], 10, 16); err == nil {
				c.Queues = append(c.Queues, uint16(n))
			}
		}
	}
}

// isLoaded reports whether the kernel has a module, loaded or compiled in; also if a container hides which ones are.
func isLoaded(module string) bool {
	if _, err := os.Stat("/sys/module/" + module); err == nil {
		return true
	}
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	list, err := os.ReadFile("/lib/modules/" + unix.ByteSliceToString(name.Release[:]) + "/modules.builtin")
	return err != nil || bytes.Contains(list, []byte("/"+module+".ko"))
}
