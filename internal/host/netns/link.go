package netns

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

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

func setUp(link string) error {
	l, err := netlink.LinkByName(link)
	if err == nil {
		err = netlink.LinkSetUp(l)
	}
	return wrap("setting up", link, err)
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

// Addresses returns the addresses that list, such as net.InterfaceAddrs, finds.
func Addresses(list func() ([]net.Addr, error)) (map[netip.Addr]bool, error) {
	every, err := list()
	if err != nil {
		return nil, fmt.Errorf("reading addresses: %w", err)
	}
	own := map[netip.Addr]bool{}
	for _, a := range every {
		if n, ok := a.(*net.IPNet); ok {
			ip, _ := netip.AddrFromSlice(n.IP)
			own[ip.Unmap()] = true
		}
	}
	return own, nil
}
