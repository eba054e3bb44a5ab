package replica

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/netns"
	"nodegate/internal/host/wire"
)

// Spec lists the parts of a replica beside the copy of the node.
type Spec struct {
	Pods  []Pod  // of this node, each with a kernel of its own
	Ports []Port // at which every end answers
}

// Pod is a Pod of this node.
type Pod struct{ Addresses []netip.Addr }

// Port is a port of a protocol, 6 or 17.
type Port struct {
	Protocol uint8
	Number   uint16
}

// Replica is a copy of the node. Close ends it; it also ends with the process.
type Replica struct {
	Capture *Capture
	Node    *netns.Namespace
	Ends    []*End   // first the Pods of the Spec, then one behind each link that leads elsewhere
	Refused []string // what the kernel did not take or the capture lacks, and so is not tried
	Missing []Pod    // to which no link leads

	index   map[int]int  // the replica's index of each link
	macs    uint32       // that were given
	absent  map[int]bool // routing rules and routes that are left out
	loaded  []Unit       // of nf_tables, in the order in which they were created
	closers []func()
}

// End is the other side of a link: a Pod, or every address of the machines behind the link.
type End struct {
	Namespace *netns.Namespace
	Link      string // of the node
	Pod       bool
	MAC       net.HardwareAddr
	number    int
	link      *Link
	addresses []netip.Addr
	silent    bool // another Pod, whose addresses are not known
}

// Build creates a replica. It needs CAP_NET_ADMIN, and CAP_SYS_ADMIN to create namespaces.
func Build(ctx context.Context, c *Capture, spec *Spec) (*Replica, error) {
	r := &Replica{Capture: c, index: map[int]int{1: 1}, absent: map[int]bool{}, Refused: slices.Clone(c.Untried)}
	for i, p := range c.Parts {
		r.absent[i] = p.Kind == PartNextHop || p.Entries != nil // Load makes it silent, or adds them
	}
	err := r.build(ctx, spec)
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("building the copy of the node: %w", err)
	}
	return r, nil
}

// Close ends all namespaces, and with them everything in them.
func (r *Replica) Close() {
	for _, f := range slices.Backward(r.closers) {
		f()
	}
	r.closers = nil
}

func (r *Replica) build(ctx context.Context, spec *Spec) (err error) {
	if r.Node, err = r.newNamespace(ctx); err != nil {
		return err
	}
	if err := r.addEnds(ctx, spec.Pods); err != nil {
		return err
	}
	if err := r.Node.Netlink(ctx, unix.NETLINK_ROUTE, r.copyNetwork); err != nil {
		return err
	}
	for _, e := range r.Ends {
		setEnd := func(s *wire.Conn) error { return r.setEnd(ctx, s, e) }
		if err := e.Namespace.Netlink(ctx, unix.NETLINK_ROUTE, setEnd); err != nil {
			return fmt.Errorf("setting up the other side of %s: %w", e.Link, err)
		}
	}
	setRoutes := func(s *wire.Conn) error { return r.setRoutes(ctx, s) }
	if err := r.Node.Netlink(ctx, unix.NETLINK_ROUTE, setRoutes); err != nil {
		return err
	}
	if err := r.Node.Netlink(ctx, unix.NETLINK_NETFILTER, r.loadSets); err != nil {
		return err
	}
	if err := r.Load(ctx, nil); err != nil {
		return err
	}
	return r.serve(ctx, spec.Ports)
}

func (r *Replica) newNamespace(ctx context.Context) (*netns.Namespace, error) {
	n, err := netns.New(ctx)
	if err != nil {
		return nil, err
	}
	r.closers = append(r.closers, n.Close)
	return n, n.Do(ctx, func() error {
		// The values of a new link. The node's own values follow if it has such a link.
		for _, key := range []string{"net/ipv4/conf/all/rp_filter", "net/ipv4/conf/default/rp_filter", "net/ipv6/conf/default/accept_dad",
			"net/ipv6/conf/default/accept_ra"} {
			if err := write(key, "0"); err != nil {
				return err
			}
		}
		return write("net/ipv6/conf/default/addr_gen_mode", "1") // no address of its own
	})
}

// addEnds creates the namespaces of the other sides.
func (r *Replica) addEnds(ctx context.Context, pods []Pod) error {
	c := r.Capture
	used := map[int]bool{}
	add := func(l *Link, pod bool) (*End, error) {
		n, err := r.newNamespace(ctx)
		if len(l.MAC) != 6 { // a veth has an address of hardware
			l.MAC = r.newMAC()
		}
		e := &End{Namespace: n, Link: l.Name, Pod: pod, MAC: r.newMAC(), number: len(r.Ends), link: l}
		if l.NoARP { // the kernel sends to the link's own address
			e.MAC = l.MAC
		}
		used[l.Index] = true
		r.Ends = append(r.Ends, e)
		return e, err
	}
	for _, p := range pods {
		l, mac := c.linkOf(p, used)
		if l == nil {
			r.Missing = append(r.Missing, p)
			continue
		}
		e, err := add(l, true)
		if err != nil {
			return err
		}
		if e.addresses = p.Addresses; mac != nil {
			e.MAC = mac
		}
	}
	for i := range c.Links {
		if l := &c.Links[i]; l.Name != "lo" && !used[l.Index] && c.isCopied(l) && !l.keepsKind() {
			e, err := add(l, false)
			if err != nil {
				return err
			}
			up := c.link(l.Master)
			next := c.nextHop(l)
			e.silent = up != nil && up.Kind == "bridge" && (l.Kind == "veth" || l.Kind == "tun") && next == nil
			if next != nil && !l.NoARP {
				e.MAC = next
			}
		}
	}
	return nil
}

func (r *Replica) newMAC() net.HardwareAddr {
	r.macs++
	return binary.BigEndian.AppendUint32([]byte{0x0a, 0x58}, 0x4e470000+r.macs)
}

// keepsKind reports whether the stand-in is of the link's own kind and lacks another side. The kernel has its module: the link is there.
func (l *Link) keepsKind() bool {
	return slices.Contains([]string{"bridge", "dummy", "vrf", "ifb"}, l.Kind)
}

// copyNetwork creates the links, in the node's copy.
func (r *Replica) copyNetwork(s *wire.Conn) error {
	c := r.Capture
	for _, key := range slices.Sorted(maps.Keys(c.Sysctls)) { // before the links: forwarding sets theirs
		if slices.Contains(sysctls, key) {
			if err := write(key, c.Sysctls[key]); err != nil {
				return err
			}
		}
	}
	existing, err := s.Dump(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg))
	if err != nil {
		return err
	}
	taken := map[int]bool{}
	for _, m := range existing { // tunnels that the kernel creates in every namespace
		index := intOf(m[4:8])
		if taken[index] = true; index != 1 {
			_, _ = s.Ask(unix.RTM_NEWLINK, 0, slices.Concat(linkHeader(index, 0), text(unix.IFLA_IFNAME, fmt.Sprintf("kernel%d", index))))
		}
	}
	for _, kept := range []bool{true, false} {
		for i := range c.Links {
			l := &c.Links[i]
			if l.Name == "lo" || l.keepsKind() != kept || kept && !c.isCopied(l) {
				continue
			}
			if err := r.addLink(s, l, taken); err != nil {
				return fmt.Errorf("creating %s %s: %w", l.Kind, l.Name, err)
			}
		}
	}
	for i := range c.Links {
		l := &c.Links[i]
		if r.index[l.Index] == 0 {
			continue
		}
		if r.index[l.Master] != 0 {
			change := slices.Concat(linkHeader(r.index[l.Index], 0), number(unix.IFLA_MASTER, r.index[l.Master]))
			if _, err := s.Ask(unix.RTM_NEWLINK, 0, change); err != nil {
				return fmt.Errorf("adding %s to its master: %w", l.Name, err)
			}
			if data := chosen(l.SlaveData, portOptions); len(data) > 0 && l.SlaveKind == "bridge" {
				_, _ = s.Ask(unix.RTM_NEWLINK, 0, slices.Concat(linkHeader(r.index[l.Index], 0), attribute(unix.IFLA_LINKINFO,
					text(infoSlaveKind, l.SlaveKind), attribute(infoSlaveData|unix.NLA_F_NESTED, data))))
			}
		}
	}
	filtered := slices.ContainsFunc(c.Parts, func(p Part) bool { return p.Kind == PartFilter })
	for i := range c.Links {
		l := &c.Links[i]
		if r.index[l.Index] == 0 {
			continue
		}
		if filtered {
			_, _ = s.Ask(unix.RTM_NEWQDISC, unix.NLM_F_CREATE, trafficMessage(r.index[l.Index], clsact, clsactParent, 0, "clsact", nil))
		}
		for _, key := range linkSysctls {
			if key = fmt.Sprintf(key, l.Name); c.Sysctls[key] != "" {
				if err := write(key, c.Sysctls[key]); err != nil {
					return err
				}
			}
		}
		if l.Kind == "bridge" { // a port has changed it
			_, _ = s.Ask(unix.RTM_NEWLINK, 0, slices.Concat(linkHeader(r.index[l.Index], 0), number(unix.IFLA_MTU, l.mtu())))
		}
		if l.Up {
			if _, err := s.Ask(unix.RTM_NEWLINK, 0, linkHeader(r.index[l.Index], unix.IFF_UP)); err != nil {
				return fmt.Errorf("setting up %s: %w", l.Name, err)
			}
		}
	}
	for _, key := range linkSysctls {
		if key = fmt.Sprintf(key, "all"); c.Sysctls[key] != "" && !slices.Contains(sysctls, key) && key != "net/ipv4/conf/all/forwarding" {
			if err := write(key, c.Sysctls[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Options of bridges and their ports (include/uapi/linux/if_link.h) that decide about packets.
var (
	bridgeOptions = []int{7, 36, 37, 38}           // IFLA_BR_VLAN_FILTERING, _NF_CALL_IPTABLES, _NF_CALL_IP6TABLES, _NF_CALL_ARPTABLES
	portOptions   = []int{4, 8, 9, 10, 11, 32, 33} // IFLA_BRPORT_MODE (hairpin), _LEARNING, _UNICAST_FLOOD, _PROXYARP, _ISOLATED
)

// chosen returns some of the attributes of data, if they are set: a kernel may lack an option that is off.
func chosen(data []byte, kinds []int) (out []byte) {
	each(data, func(kind int, value, _ []byte) {
		if slices.Contains(kinds, kind) && (len(bytes.Trim(value, "\x00")) > 0 || kind == 8 || kind == 9) {
			out = append(out, attribute(uint16(kind), value)...)
		}
	})
	return out
}

// addLink creates the stand-in of a link: of its own kind, or one end of a veth pair.
func (r *Replica) addLink(s *wire.Conn, l *Link, taken map[int]bool) error {
	index := l.Index
	for ; taken[index]; index += 1 << 20 {
	}
	info := text(infoKind, l.Kind)
	switch l.Kind {
	case "bridge":
		info = append(info, attribute(infoData|unix.NLA_F_NESTED, chosen(l.Data, bridgeOptions))...)
	case "vrf":
		info = append(info, attribute(infoData|unix.NLA_F_NESTED, l.Data)...)
	}
	if !l.keepsKind() {
		at := slices.IndexFunc(r.Ends, func(e *End) bool { return e.link == l })
		if at < 0 {
			return nil // of a Pod that no flow uses
		}
		e := r.Ends[at]
		peer := slices.Concat(linkHeader(0, 0), text(unix.IFLA_IFNAME, "eth0"), number(unix.IFLA_MTU, l.mtu()),
			attribute(unix.IFLA_ADDRESS, e.MAC), number(unix.IFLA_NET_NS_FD, e.Namespace.FD()))
		const vethPeer = 1 // VETH_INFO_PEER
		info = append(text(infoKind, "veth"), attribute(infoData|unix.NLA_F_NESTED, attribute(vethPeer|unix.NLA_F_NESTED, peer))...)
	}
	message := slices.Concat(linkHeader(index, 0), text(unix.IFLA_IFNAME, l.Name), number(unix.IFLA_MTU, l.mtu()),
		number(unix.IFLA_GROUP, l.Group))
	if len(l.MAC) == 6 && l.Kind != "vrf" {
		message = append(message, attribute(unix.IFLA_ADDRESS, l.MAC)...)
	}
	if _, err := s.Ask(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL,
		append(message, attribute(unix.IFLA_LINKINFO|unix.NLA_F_NESTED, info)...)); err != nil {
		return err
	}
	taken[index] = true
	r.index[l.Index] = index
	if l.NoARP {
		header := linkHeader(index, unix.IFF_NOARP)
		binary.NativeEndian.PutUint32(header[12:], unix.IFF_NOARP)
		_, err := s.Ask(unix.RTM_NEWLINK, 0, header)
		return err
	}
	return nil
}

func (l *Link) mtu() int {
	if l.MTU <= 0 || l.MTU > 65535 {
		return 65535
	}
	return l.MTU
}

// linkHeader returns a struct ifinfomsg that sets flags.
func linkHeader(index int, flags uint32) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], flags)
	binary.NativeEndian.PutUint32(b[12:], flags)
	return b
}

// awaitUp waits until some links of the thread's namespace are operational: until then they drop packets.
func awaitUp(ctx context.Context, s *wire.Conn, wanted map[int]bool) error {
	for {
		links, err := s.Dump(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg))
		if err != nil {
			return err
		}
		down := slices.ContainsFunc(links, func(m []byte) bool {
			const operUp = 6 // IF_OPER_UP
			state := attributes(m[unix.SizeofIfInfomsg:], unix.IFLA_OPERSTATE)[unix.IFLA_OPERSTATE]
			return wanted[intOf(m[4:8])] && (len(state) != 1 || state[0] != operUp)
		})
		if !down {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// refuse records what the kernel did not take.
func (r *Replica) refuse(what string, err error) {
	if err == nil || errors.Is(err, unix.EEXIST) {
		return
	}
	if what = fmt.Sprintf("%s: %v", what, err); !slices.Contains(r.Refused, what) {
		r.Refused = append(r.Refused, what)
	}
}
