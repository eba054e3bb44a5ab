package netns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// AddBridge creates a bridge and sets it up. The given hardware address prevents systemd's
// MACAddressPolicy from changing it; group is for DeleteGroup. The error wraps fs.ErrExist if the
// name is in use.
func (n *Namespace) AddBridge(ctx context.Context, name string, mac net.HardwareAddr, group uint32) error {
	return n.Do(ctx, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr, attrs.Group, attrs.Flags = name, mac, group, net.FlagUp
		return wrap("creating bridge", name, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
	})
}

// Veth is a pair of links. One end is here, and is a port of the bridge Master unless that is "";
// the other end is in the namespace Peer.
type Veth struct {
	Name, Master string
	MAC          net.HardwareAddr
	Group        uint32 // the group of this end, for DeleteGroup
	Peer         *Namespace
	PeerName     string
	PeerMAC      net.HardwareAddr
}

// AddVeth creates the pair and sets both ends up.
func (n *Namespace) AddVeth(ctx context.Context, v Veth) error {
	err := n.Do(ctx, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr, attrs.Group = v.Name, v.MAC, v.Group
		if v.Master != "" {
			master, err := netlink.LinkByName(v.Master)
			if err != nil {
				return wrap("finding", v.Master, err)
			}
			attrs.MasterIndex = master.Attrs().Index
		}
		link := netlink.NewVeth(attrs)
		link.PeerName, link.PeerHardwareAddr = v.PeerName, v.PeerMAC
		link.PeerNamespace = netlink.NsFd(v.Peer.file.Fd())
		if err := netlink.LinkAdd(link); err != nil {
			return wrap("creating veth pair", v.Name, err)
		}
		return setUp(v.Name)
	})
	if err != nil {
		return err
	}
	return v.Peer.SetUp(ctx, v.PeerName)
}

// SetUp sets a link up.
func (n *Namespace) SetUp(ctx context.Context, link string) error {
	return n.Do(ctx, func() error { return setUp(link) })
}

func setUp(link string) error {
	l, err := netlink.LinkByName(link)
	if err == nil {
		err = netlink.LinkSetUp(l)
	}
	return wrap("setting up", link, err)
}

// AwaitUp waits until links are operational. A link that is only set up drops packets until the
// kernel has noticed its carrier, and a lost ARP request costs a second.
func (n *Namespace) AwaitUp(ctx context.Context, links ...string) error {
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	for {
		var waiting string
		err := n.Do(ctx, func() error {
			for _, name := range links {
				l, err := netlink.LinkByName(name)
				if err != nil {
					return wrap("finding", name, err)
				}
				if l.Attrs().OperState != netlink.OperUp {
					waiting = name
				}
			}
			return nil
		})
		if err != nil || waiting == "" {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s to come up: %w", waiting, ctx.Err())
		case <-tick.C:
		}
	}
}

// AddAddr adds an address with its prefix to a link.
func (n *Namespace) AddAddr(ctx context.Context, link string, p netip.Prefix) error {
	return n.Do(ctx, func() error {
		l, err := netlink.LinkByName(link)
		if err == nil {
			err = netlink.AddrAdd(l, &netlink.Addr{IPNet: ipNet(p)})
		}
		return wrap(fmt.Sprintf("adding %s to", p), link, err)
	})
}

// AddRoute routes a destination through a gateway.
func (n *Namespace) AddRoute(ctx context.Context, to netip.Prefix, via netip.Addr) error {
	return n.Do(ctx, func() error {
		err := netlink.RouteAdd(&netlink.Route{Dst: ipNet(to), Gw: via.AsSlice()})
		return wrap("routing", fmt.Sprintf("%s via %s", to, via), err)
	})
}

// RouteTo returns the namespace's most specific route to an address; ok is false if no route or
// only a default route matches.
func (n *Namespace) RouteTo(ctx context.Context, a netip.Addr) (route string, ok bool, err error) {
	err = n.Do(ctx, func() error {
		routes, err := netlink.RouteGetWithOptions(a.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
		if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
			return nil
		}
		if err != nil {
			return wrap("looking up the route to", a.String(), err)
		}
		for _, r := range routes {
			if r.Dst == nil {
				continue
			}
			if ones, _ := r.Dst.Mask.Size(); ones > 0 {
				route, ok = r.Dst.String(), true
			}
		}
		return nil
	})
	return route, ok, err
}

// Dump repeats a netlink dump that a change has interrupted.
func Dump[T any](ask func() ([]T, error)) ([]T, error) {
	var all []T
	var err error
	for range 5 {
		if all, err = ask(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

// maxLinks limits the links of a machine. A link takes up to 900 bytes; a node with 110 Pods has some 120.
const maxLinks = 100_000

// Links lists the links of the caller's namespace. It fails if the machine has more than maxLinks.
func Links() ([]netlink.Link, error) { return linksUpTo(maxLinks) }

// linksUpTo decodes each message as it arrives: netlink.LinkList keeps all of them first.
func linksUpTo(most int) ([]netlink.Link, error) {
	return Dump(func() ([]netlink.Link, error) {
		query := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
		query.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
		query.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(nl.RTEXT_FILTER_VF)))
		var all []netlink.Link
		var failed error
		err := query.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWLINK, func(message []byte) bool {
			link, err := netlink.LinkDeserialize(nil, message)
			switch {
			case err != nil:
				failed = err
			case len(all) == most:
				failed = fmt.Errorf("the machine has more than %d links", most)
			}
			all = append(all, link)
			return failed == nil
		})
		return all, cmp.Or(failed, err)
	})
}

// PeerMTU returns the MTU of the other end of a veth, in another network namespace. The kernel looks the link up there
// (IFLA_TARGET_NETNSID), so the caller stays in its own namespace. A link that no longer exists is fs.ErrNotExist.
func PeerMTU(veth netlink.Link) (int, error) {
	name := veth.Attrs().Name
	query := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	peer := nl.NewIfInfomsg(unix.AF_UNSPEC)
	peer.Index = int32(veth.Attrs().ParentIndex)
	query.AddData(peer)
	query.AddData(nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(veth.Attrs().NetNsID))))
	messages, err := query.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if errors.Is(err, unix.EINVAL) || err == nil && len(messages) == 0 {
		err = fs.ErrNotExist // the namespace was deleted
	}
	if err != nil {
		return 0, wrap("reading the other end of", name, err)
	}
	attributes, err := nl.ParseRouteAttr(messages[0][unix.SizeofIfInfomsg:])
	if err != nil {
		return 0, wrap("reading the other end of", name, err)
	}
	mtu, there := 0, false
	for _, a := range attributes {
		switch {
		case a.Attr.Type == unix.IFLA_TARGET_NETNSID:
			there = true
		case a.Attr.Type == unix.IFLA_MTU && len(a.Value) >= 4:
			mtu = int(nl.NativeEndian().Uint32(a.Value))
		}
	}
	if !there { // before 4.15 the kernel ignores the namespace, and answers about a link of its own
		return 0, wrap("reading the other end of", name, fmt.Errorf("this kernel reads no other namespace: %w", errors.ErrUnsupported))
	}
	return mtu, nil
}

// LinksNamed returns the names of the links whose names begin with prefix.
func (n *Namespace) LinksNamed(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	err := n.Do(ctx, func() error {
		links, err := Links()
		if err != nil {
			return fmt.Errorf("listing links: %w", err)
		}
		for _, l := range links {
			if name := l.Attrs().Name; strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
		return nil
	})
	return names, err
}

// DeleteLinks removes links. A link that does not exist is not an error.
func (n *Namespace) DeleteLinks(ctx context.Context, names ...string) error {
	return n.Do(ctx, func() error {
		var errs []error
		for _, name := range names {
			l, err := netlink.LinkByName(name)
			if err == nil {
				err = netlink.LinkDel(l)
			}
			if err = wrap("removing", name, err); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	})
}

// DeleteGroup removes all links of a group at once: the kernel then waits for its readers only
// once, not once per link. An empty group is not an error.
func (n *Namespace) DeleteGroup(ctx context.Context, group uint32) error {
	return n.Do(ctx, func() error {
		req := nl.NewNetlinkRequest(unix.RTM_DELLINK, unix.NLM_F_ACK)
		req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
		req.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(group)))
		_, err := req.Execute(unix.NETLINK_ROUTE, 0)
		if err = wrap("removing links of group", fmt.Sprintf("%#x", group), err); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// wrap adds the action and its object to an error and, if a privilege is missing, the capability. A
// link that no longer exists is fs.ErrNotExist.
func wrap(act, thing string, err error) error {
	var gone netlink.LinkNotFoundError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENODEV) || errors.As(err, &gone):
		err = fs.ErrNotExist
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s %s needs CAP_NET_ADMIN: %w", act, thing, err)
	}
	return fmt.Errorf("%s %s: %w", act, thing, err)
}
