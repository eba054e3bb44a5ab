// Package ipvs reads what kube-proxy writes in IPVS mode beside its iptables rules, over netlink: virtual servers, and the sets of who may
// use a load balancer's address.
package ipvs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/activity"
	"nodegate/internal/host/netns"
	"nodegate/internal/host/wire"
	"nodegate/internal/ruleset"
)

const device = "kube-ipvs0" // to which kube-proxy gives the addresses of Services

// Read returns the virtual servers of the network namespace that the calling thread is in, fs.ErrNotExist where the kernel has no
// IPVS: it never loads the module. It needs CAP_NET_ADMIN.
func Read(ctx context.Context) (*ruleset.IPVS, error) {
	defer activity.Doing(ctx, "netlink: IPVS")()
	c, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	all := &ruleset.IPVS{}
	messages, err := c.ask(getService, nil)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		s, ok, err := decodeServer(m)
		if err != nil {
			return nil, fmt.Errorf("reading a virtual server: %w", err)
		}
		if !ok {
			continue
		}
		if s.Servers, err = c.servers(&s); err != nil {
			return nil, err
		}
		all.Servers = append(all.Servers, s)
	}
	if all.Sources, err = sources(ctx); err != nil {
		return nil, err
	}
	return all, addresses(all)
}

// InUse reports whether IPVS has a virtual server. It never loads the module, and needs CAP_NET_ADMIN where that is loaded.
func InUse(ctx context.Context) (bool, error) {
	c, err := dial(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer c.Close()
	messages, err := c.ask(getService, nil)
	return len(messages) > 0, err
}

// conn asks IPVS.
type conn struct {
	*wire.Conn
	ctx    context.Context
	family uint16
}

// dial sends no query if the module is not loaded.
func dial(ctx context.Context) (*conn, error) {
	if _, err := os.Stat("/proc/thread-self/net/ip_vs"); err != nil {
		return nil, fmt.Errorf("looking for IPVS: %w", err)
	}
	return dialFamily(ctx, "IPVS")
}

func open(ctx context.Context, protocol int) (*conn, error) {
	s, err := wire.Open(protocol)
	return &conn{s, ctx, unix.GENL_ID_CTRL}, err
}

func dialFamily(ctx context.Context, name string) (*conn, error) {
	c, err := open(ctx, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", name, err)
	}
	// To ask for one family by its name loads its module; to list all does not.
	families, err := c.ask(unix.CTRL_CMD_GETFAMILY, nil)
	for _, m := range families {
		if number, ok := decodeFamily(m, name); ok {
			c.family = number
			return c, nil
		}
	}
	c.Close()
	if err == nil {
		err = fmt.Errorf("the kernel has no %s: %w", name, fs.ErrNotExist)
	}
	return nil, err
}

// servers returns where a virtual server's connections go, none where it is gone by now.
func (c *conn) servers(of *ruleset.VirtualServer) ([]ruleset.RealServer, error) {
	messages, err := c.ask(getDestination, encode(of))
	if err != nil {
		return nil, err
	}
	var all []ruleset.RealServer
	for _, m := range messages {
		s, err := decodeDestination(m, of.Address.Addr().Is4())
		if err != nil {
			return nil, fmt.Errorf("reading a real server of %s: %w", of.Address, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// ask returns what the kernel lists, each message with its generic header.
func (c *conn) ask(command uint8, about []byte) ([][]byte, error) {
	messages, err := c.list(c.family, append([]byte{command, version, 0, 0}, about...))
	if err != nil {
		return nil, fmt.Errorf("asking for IPVS: %w", err)
	}
	return messages, nil
}

// list returns the messages with which the kernel answers one.
func (c *conn) list(kind uint16, message []byte) ([][]byte, error) {
	if c.ctx.Err() != nil {
		return nil, c.ctx.Err()
	}
	return c.Dump(kind, message)
}

// addresses reads which addresses are the node's, and which of them kube-proxy's.
func addresses(of *ruleset.IPVS) (err error) {
	if of.Local, err = netns.Addresses(net.InterfaceAddrs); err != nil {
		return err
	}
	links, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("reading links: %w", err)
	}
	of.Bound = map[netip.Addr]bool{}
	if i := slices.IndexFunc(links, func(l net.Interface) bool { return l.Name == device }); i >= 0 {
		of.Bound, err = netns.Addresses(links[i].Addrs)
	}
	return err
}
