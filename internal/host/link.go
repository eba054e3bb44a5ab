package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	kinds "nodegate/internal/ethtool"
	"nodegate/internal/host/netns"
)

// Link is a network interface.
type Link struct {
	Name   string `json:"name"`
	Index  int    `json:"index,omitempty"` // differs for a link that was recreated under the same name
	Kind   string `json:"kind,omitempty"`  // "" for a physical one
	MTU    int    `json:"mtu"`
	Master string `json:"master,omitempty"` // the bridge or bond that it belongs to
	Up     bool   `json:"up,omitempty"`
	VXLAN  *VXLAN `json:"vxlan,omitempty"`
}

// VXLAN has the properties that only links of kind vxlan have.
type VXLAN struct {
	UDPCSum bool   `json:"udpCSum"` // the outer packet carries a UDP checksum
	Port    int    `json:"port"`
	Parent  string `json:"parent,omitempty"` // the interface it sends through
	// FlowBased is set if each packet's metadata selects its destination (external). The program
	// that creates the packets then also decides their size, as Open vSwitch does.
	FlowBased bool `json:"flowBased,omitempty"`
	V6        bool `json:"v6,omitempty"` // its own address or its group is an IPv6 address
}

// Feature is the state of one offload, as ETHTOOL_GFEATURES reports it.
type Feature struct {
	Available    bool `json:"available"`    // the driver allows changes
	Requested    bool `json:"requested"`    // it was requested on
	Active       bool `json:"active"`       // it is on
	NeverChanged bool `json:"neverChanged"` // no driver allows changes
}

// Fixed reports whether the feature cannot be changed.
func (f Feature) Fixed() bool { return !f.Available || f.NeverChanged }

// String returns the state as ethtool -k prints it.
func (f Feature) String() string {
	s := onOff(f.Active)
	switch {
	case f.Fixed():
		s += " [fixed]"
	case f.Requested && !f.Active:
		s += " [requested on]"
	case !f.Requested && f.Active:
		s += " [requested off]"
	}
	return s
}

// DriverOf returns the driver of a link, or "" if it has none, as lo, or was removed.
func (h *Host) DriverOf(ctx context.Context, link string) (string, error) {
	driver, err := h.Links.Driver(ctx, link)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return driver, err
}

// machineLinks queries the kernel in the caller's network namespace. It opens its sockets at the
// first use, because most policies need none.
type machineLinks struct {
	tool  *ethtool.Ethtool
	names map[string]uint // of the features
	fd    int             // the socket for feature queries, 0 before the first one
}

// Close closes the sockets.
func (m *machineLinks) Close() {
	if m.tool != nil {
		m.tool.Close()
	}
	if m.fd != 0 {
		_ = unix.Close(m.fd)
	}
}

func (m *machineLinks) List(context.Context) ([]Link, error) {
	found, err := netns.Links()
	if err != nil {
		return nil, fmt.Errorf("listing links: %w", err)
	}
	names := map[int]string{}
	for _, l := range found {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	links := make([]Link, 0, len(found))
	for _, l := range found {
		link := newLink(l)
		link.Master = names[l.Attrs().MasterIndex]
		if v, ok := l.(*netlink.Vxlan); ok {
			v6 := v.SrcAddr != nil && v.SrcAddr.To4() == nil || v.Group != nil && v.Group.To4() == nil
			link.VXLAN = &VXLAN{UDPCSum: v.UDPCSum, Port: v.Port, Parent: names[v.VtepDevIndex], FlowBased: v.FlowBased, V6: v6}
		}
		links = append(links, link)
	}
	return links, nil
}

func (m *machineLinks) Get(_ context.Context, name string) (Link, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return Link{}, linkErr("reading the state", name, err)
	}
	return newLink(l), nil
}

// Scalar returns the number of a kind of setting that is one number.
func (l Link) Scalar(kind string) (n int, is bool) {
	n, is = map[string]int{"mtu": l.MTU}[kind]
	return n, is
}

// newLink leaves out the fields that name other links.
func newLink(l netlink.Link) Link {
	a := l.Attrs()
	link := Link{Name: a.Name, Index: a.Index, Kind: l.Type(), MTU: a.MTU, Up: a.Flags&net.FlagUp != 0}
	switch link.Kind { // names that only the library uses
	case "device":
		link.Kind = ""
	case "tuntap":
		link.Kind = "tun"
	}
	return link
}

func (m *machineLinks) PodMTUs(context.Context) (map[string]int, error) {
	found, err := netns.Links()
	if err != nil {
		return nil, fmt.Errorf("listing links: %w", err)
	}
	mtus := map[string]int{}
	for _, l := range found {
		if l.Type() != "veth" || l.Attrs().NetNsID < 0 {
			continue
		}
		mtu, err := netns.PeerMTU(l)
		switch {
		case err == nil:
			mtus[l.Attrs().Name] = mtu
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return mtus, nil
}

func (m *machineLinks) DefaultRoutes(context.Context) ([]string, error) {
	routes, err := netns.Dump(func() (list []netlink.Route, err error) {
		// One by one: a router of the whole Internet has a million.
		err = netlink.RouteListFilteredIter(netlink.FAMILY_ALL, &netlink.Route{}, 0, func(r netlink.Route) bool {
			isDefault := r.Dst == nil
			if !isDefault {
				ones, _ := r.Dst.Mask.Size()
				isDefault = ones == 0
			}
			if isDefault && r.MPLSDst == nil && r.Type == unix.RTN_UNICAST { // blackhole, unreachable: the IPv6 ones name lo
				list = append(list, r)
			}
			return true
		})
		return list, err
	})
	if err != nil {
		return nil, fmt.Errorf("listing routes: %w", err)
	}
	var names []string
	for _, r := range routes {
		hops := []int{r.LinkIndex}
		for _, h := range r.MultiPath {
			hops = append(hops, h.LinkIndex)
		}
		for _, index := range hops {
			// Index 0 is a multipath route: its hops have the links.
			if l, err := netlink.LinkByIndex(index); index != 0 && err == nil && !slices.Contains(names, l.Attrs().Name) {
				names = append(names, l.Attrs().Name)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

func (m *machineLinks) ethtool() (*ethtool.Ethtool, error) {
	if m.tool == nil {
		t, err := ethtool.NewEthtool()
		if err != nil {
			return nil, fmt.Errorf("opening ethtool socket: %w", err)
		}
		m.tool = t
	}
	return m.tool, nil
}

func (m *machineLinks) Driver(_ context.Context, link string) (string, error) {
	t, err := m.ethtool()
	if err != nil {
		return "", err
	}
	name, err := t.DriverName(link)
	return name, linkErr("reading driver", link, err)
}

func (m *machineLinks) Set(_ context.Context, link, kind string, to map[string]string) error {
	var err error
	switch {
	case kinds.Of(kind).IsScalar():
		err = setScalar(link, kind, to[""])
	case kind == "offload":
		err = m.setFeatures(link, to)
	default:
		err = m.setTuning(link, kind, to)
	}
	return linkErr("changing "+kind, link, err)
}

// setScalar reads the value back and fails if the kernel has changed it.
func setScalar(link, kind, to string) error {
	want, err := strconv.Atoi(to)
	if err != nil {
		return err
	}
	l, err := netlink.LinkByName(link)
	if err == nil {
		err = map[string]func(netlink.Link, int) error{"mtu": netlink.LinkSetMTU}[kind](l, want)
	}
	if err == nil {
		l, err = netlink.LinkByName(link)
	}
	if err != nil {
		return err
	}
	if set, _ := newLink(l).Scalar(kind); set != want {
		return fmt.Errorf("wrote %d, the kernel set %d instead", want, set)
	}
	return nil
}

func (m *machineLinks) Stats(_ context.Context, link string) (map[string]uint64, error) {
	t, err := m.ethtool()
	if err != nil {
		return nil, err
	}
	stats, err := t.Stats(link)
	return stats, linkErr("reading statistics", link, err)
}

func linkErr(act, link string, err error) error {
	if err == nil {
		return nil
	}
	var gone netlink.LinkNotFoundError
	if errors.Is(err, unix.ENODEV) || errors.As(err, &gone) {
		err = fs.ErrNotExist
	}
	return fmt.Errorf("%s of %s: %w", act, link, err)
}
