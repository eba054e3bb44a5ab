package hosttest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"nodegate/internal/host"
)

type links struct {
	*Machine
	otherLinks
}

func (m links) find(name string) (*Link, error) {
	if l, ok := m.Links[name]; ok {
		return l, nil
	}
	return nil, fmt.Errorf("link %s: %w", name, fs.ErrNotExist)
}

func (m links) List(ctx context.Context) ([]host.Link, error) {
	var all []host.Link
	for _, name := range slices.Sorted(maps.Keys(m.Links)) {
		l, _ := m.Get(ctx, name)
		l.Master, l.VXLAN = m.Links[name].Master, m.Links[name].VXLAN
		all = append(all, l)
	}
	return all, nil
}

func (m links) Get(_ context.Context, name string) (host.Link, error) {
	l, err := m.find(name)
	if err != nil {
		return host.Link{}, err
	}
	return host.Link{Name: name, Index: l.Index, Kind: l.Kind, MTU: l.MTU, Up: true}, nil
}

// Watch passes on Notices.
func (m links) Watch(ctx context.Context, subscribed func(), events chan<- host.LinkEvent) error {
	subscribed()
	for {
		select {
		case e := <-m.Notices:
			select {
			case events <- e:
			case <-ctx.Done():
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m links) Driver(_ context.Context, link string) (string, error) {
	l, err := m.find(link)
	if err != nil {
		return "", err
	}
	return l.Driver, nil
}

func (m links) PodMTUs(context.Context) (map[string]int, error) {
	mtus := map[string]int{}
	for name, l := range m.Links {
		if l.PodMTU != 0 {
			mtus[name] = l.PodMTU
		}
	}
	return mtus, m.Refuse["MTU of Pods"]
}

func (m links) DefaultRoutes(context.Context) ([]string, error) { return m.Routes, nil }

func (m links) Addresses(context.Context) ([]netip.Addr, error)          { return m.IPs, m.Refuse["addresses"] }
func (m links) RoutingRules(context.Context) ([]host.RoutingRule, error) { return m.Routing, nil }

func (m links) Hops(context.Context) ([]host.Hop, error) { return slices.Clone(m.Machine.Hops), nil }

func (m links) Foreign(context.Context) ([]host.Foreign, error) {
	return slices.Clone(m.Machine.Foreign), nil
}

func (m links) Features(_ context.Context, link string) (map[string]host.Feature, error) {
	l, err := m.find(link)
	if err != nil {
		return nil, err
	}
	return maps.Clone(l.Features), nil
}

func (m links) Tuning(_ context.Context, link, kind string) (map[string]host.Amount, error) {
	l, err := m.find(link)
	if err == nil && l.Tuning[kind] == nil {
		err = fmt.Errorf("reading %s of %s: %w", kind, link, errors.ErrUnsupported)
	}
	if err != nil {
		return nil, err
	}
	return maps.Clone(l.Tuning[kind]), nil
}

// Set behaves like a driver: a fixed feature keeps its state without an error, segmentation is turned off with the last checksum but
// stays requested, and a number over the driver's limit is refused.
func (m links) Set(_ context.Context, link, kind string, to map[string]string) error {
	l, err := m.find(link)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(to)) {
		value := to[name]
		switch kind {
		case "mtu":
			m.Log = append(m.Log, fmt.Sprintf("ip link set %s mtu %s", link, value))
			l.MTU, err = strconv.Atoi(value)
		case "offload":
			m.Log = append(m.Log, fmt.Sprintf("ethtool -K %s %s %t", link, name, value == "on"))
			err = l.setFeature(name, value == "on")
		default:
			n := map[string]int{"on": 1}[value]
			if value != "on" && value != "off" {
				n, err = strconv.Atoi(value)
			}
			m.Log = append(m.Log, fmt.Sprintf("ethtool %s %s %s %d", kind, link, name, n))
			a := l.Tuning[kind][name]
			if a.Max > 0 && uint32(n) > a.Max {
				return fmt.Errorf("changing %s of %s: %w", kind, link, syscall.EINVAL)
			}
			a.Now = uint32(n)
			l.Tuning[kind][name] = a
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *Link) setFeature(name string, on bool) error {
	f, ok := l.Features[name]
	if !ok {
		return fmt.Errorf("unsupported feature %q", name)
	}
	if !f.Fixed() {
		f.Requested, f.Active = on, on
		l.Features[name] = f
	}
	checksum := false
	for name, f := range l.Features {
		checksum = checksum || strings.HasPrefix(name, "tx-checksum-") && f.Active
	}
	if f, ok := l.Features["tx-tcp-segmentation"]; ok && !f.Fixed() {
		f.Active = f.Requested && checksum
		l.Features["tx-tcp-segmentation"] = f
	}
	return nil
}

func (m links) Stats(_ context.Context, link string) (map[string]uint64, error) {
	l, err := m.find(link)
	if err != nil {
		return nil, err
	}
	return l.Stats, nil
}
