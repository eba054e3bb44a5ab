package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	"github.com/coreos/go-iptables/iptables"
	"github.com/google/nftables"
)

// RedirectSpec is a DNAT of one TCP Service address to one endpoint, in kube-proxy's form, for
// every packet that passes PREROUTING. Packets of Client keep their source: a rule of the node that
// masquerades packets to non-Pod addresses would send the reply to the node, regardless of the
// bridge.
type RedirectSpec struct {
	Name              string // name of the table or the chains: unique, at most 15 characters
	Service, Endpoint netip.AddrPort
	Client            netip.Addr
}

// Hits counts packets in the IP hooks of a redirection's namespace. Frames that a bridge forwards
// without br_netfilter pass no hook and are not counted.
type Hits struct {
	Request    Way    `json:"request"`    // towards the Service, or the endpoint after translation
	Translated uint64 `json:"translated"` // matches of the DNAT rule: one for each connection
	Reply      Way    `json:"reply"`      // from the endpoint's own address
}

// Way counts the packets of one direction in three hooks. Postrouting is counted before source
// translation: a reply still has the endpoint's address there.
type Way struct {
	Prerouting  uint64 `json:"prerouting"`  // packets in PREROUTING
	Forward     uint64 `json:"forward"`     // packets in FORWARD
	Postrouting uint64 `json:"postrouting"` // packets in POSTROUTING
}

// Redirect is an active redirection.
type Redirect interface {
	// Backend returns BackendNftables or BackendIptables.
	Backend() string
	Hits(context.Context) (Hits, error)
	// Remove deletes it. Parts that no longer exist are not an error.
	Remove(context.Context) error
}

// The backends of a redirection.
const (
	BackendNftables = "nftables"
	BackendIptables = "iptables"
)

// AddRedirect creates the redirection with the given backend. With "" it uses nftables, or iptables
// if the kernel lacks nf_tables. It needs CAP_NET_ADMIN.
func (n *Namespace) AddRedirect(ctx context.Context, backend string, spec RedirectSpec) (Redirect, error) {
	switch backend {
	case BackendNftables:
		return n.addNftRedirect(ctx, spec)
	case BackendIptables:
		return n.addIptablesRedirect(ctx, spec)
	case "":
		return firstRedirect(ctx, spec, n.addNftRedirect, n.addIptablesRedirect)
	}
	return nil, fmt.Errorf("unknown backend %q; known backends: %s, %s", backend, BackendNftables, BackendIptables)
}

type redirector func(context.Context, RedirectSpec) (Redirect, error)

// firstRedirect tries the second backend only if the first one does not exist: a missing permission
// would affect both.
func firstRedirect(ctx context.Context, spec RedirectSpec, first, second redirector) (Redirect, error) {
	r, err := first(ctx, spec)
	if err == nil || errors.Is(err, fs.ErrPermission) || ctx.Err() != nil {
		return r, err
	}
	r, other := second(ctx, spec)
	if other != nil {
		return nil, errors.Join(err, other)
	}
	return r, nil
}

// Redirects returns the names of the redirections that begin with prefix. If all is set, it also
// looks for redirections of iptables. That starts a program and, with the legacy backend, copies
// the whole table.
func (n *Namespace) Redirects(ctx context.Context, prefix string, all bool) ([]string, error) {
	names, err := n.nftRedirects(ctx, prefix)
	if err != nil || !all {
		return names, err
	}
	err = n.Do(ctx, func() error {
		return eachIptables(func(tool *iptables.IPTables, table string) error {
			chains, err := tool.ListChains(table)
			for _, chain := range chains {
				at := strings.LastIndexByte(chain, '-')
				if at > 0 && strings.HasPrefix(chain, prefix) && !slices.Contains(names, chain[:at]) {
					names = append(names, chain[:at])
				}
			}
			return err
		})
	})
	return names, err
}

// RemoveRedirect removes a redirection that an earlier process created, if there is one. all has
// the same meaning as for Redirects.
func (n *Namespace) RemoveRedirect(ctx context.Context, name string, all bool) error {
	err := (&nftRedirect{n: n, table: &nftables.Table{Name: name, Family: nftables.TableFamilyIPv4}}).Remove(ctx)
	if !all {
		return err
	}
	return errors.Join(err, n.Do(ctx, func() error {
		return eachIptables(func(tool *iptables.IPTables, table string) error {
			for _, c := range iptablesChains(RedirectSpec{Name: name}) {
				if c.table != table {
					continue
				}
				if err := c.remove(tool); err != nil {
					return fmt.Errorf("removing chain %s: %w", c.name, err)
				}
			}
			return nil
		})
	}))
}
