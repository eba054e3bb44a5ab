package netns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/coreos/go-iptables/iptables"

	"nodegate/internal/host/program"
)

// iptablesRedirect consists of five separate chains and a jump to each, for kernels without
// nf_tables.
type iptablesRedirect struct {
	n      *Namespace
	tool   *iptables.IPTables
	chains []iptablesChain // prerouting, forward, postrouting, dnat; snat
}

type iptablesChain struct {
	table, hook, name string
	rules             [][]string
}

func iptablesChains(spec RedirectSpec) []iptablesChain {
	to := func(a netip.AddrPort) []string {
		return []string{"-d", a.Addr().String(), "-p", "tcp", "--dport", strconv.Itoa(int(a.Port()))}
	}
	from := []string{"-s", spec.Endpoint.Addr().String(), "-p", "tcp", "--sport", strconv.Itoa(int(spec.Endpoint.Port()))}
	return []iptablesChain{
		{"mangle", "PREROUTING", spec.Name + "-pre", [][]string{to(spec.Service), from}},
		{"mangle", "FORWARD", spec.Name + "-fwd", [][]string{to(spec.Endpoint), from}},
		{"mangle", "POSTROUTING", spec.Name + "-post", [][]string{to(spec.Endpoint), from}},
		{"nat", "PREROUTING", spec.Name + "-dnat", [][]string{
			append(to(spec.Service), "-j", "DNAT", "--to-destination", spec.Endpoint.String()),
		}},
		{"nat", "POSTROUTING", spec.Name + "-snat", [][]string{append(to(spec.Endpoint), "-s", spec.Client.String(), "-j", "ACCEPT")}},
	}
}

// addIptablesRedirect uses the machine's iptables, or iptables-legacy if iptables needs nf_tables
// and the kernel does not have it.
func (n *Namespace) addIptablesRedirect(ctx context.Context, spec RedirectSpec) (Redirect, error) {
	r, err := n.addRedirectWith(ctx, "iptables", spec)
	if err == nil {
		return r, nil
	}
	r, other := n.addRedirectWith(ctx, "iptables-legacy", spec)
	if other != nil {
		return nil, errors.Join(err, other)
	}
	return r, nil
}

// addRedirectWith replaces existing chains of that name, because they are leftovers.
func (n *Namespace) addRedirectWith(ctx context.Context, program string, spec RedirectSpec) (Redirect, error) {
	r := &iptablesRedirect{n: n, chains: iptablesChains(spec)}
	err := n.Do(ctx, func() (err error) {
		if r.tool, err = openIptables(program); err != nil {
			return err
		}
		for _, c := range r.chains {
			if c.add(r.tool) == nil {
				continue
			}
			if err := errors.Join(c.remove(r.tool), c.add(r.tool)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && r.tool != nil {
		err = errors.Join(err, r.Remove(context.WithoutCancel(ctx)))
	}
	if err != nil {
		return nil, fmt.Errorf("creating %s chains %s: %w", program, spec.Name, err)
	}
	return r, nil
}

// openIptables waits at most one second for the lock in each call.
func openIptables(name string) (*iptables.IPTables, error) {
	path, err := program.Find(name)
	if err != nil {
		return nil, err
	}
	return iptables.New(iptables.Path(path), iptables.Timeout(1))
}

func (c iptablesChain) add(tool *iptables.IPTables) error {
	if err := tool.NewChain(c.table, c.name); err != nil {
		return err
	}
	for _, rule := range c.rules {
		if err := tool.Append(c.table, c.name, rule...); err != nil {
			return err
		}
	}
	return tool.Insert(c.table, c.hook, 1, "-j", c.name)
}

// remove deletes the jump first: a chain in use cannot be deleted.
func (c iptablesChain) remove(tool *iptables.IPTables) error {
	known, err := tool.ChainExists(c.table, c.name)
	if err != nil || !known {
		return err
	}
	if err := tool.DeleteIfExists(c.table, c.hook, "-j", c.name); err != nil {
		return err
	}
	return tool.ClearAndDeleteChain(c.table, c.name)
}

func (r *iptablesRedirect) Backend() string { return BackendIptables }

func (r *iptablesRedirect) Hits(ctx context.Context) (h Hits, err error) {
	err = r.n.Do(ctx, func() error {
		var counts []uint64
		for _, c := range r.chains[:4] {
			rules, err := r.tool.ListWithCounters(c.table, c.name)
			if err != nil {
				return fmt.Errorf("reading the counters of chain %s: %w", c.name, err)
			}
			counts = append(counts, packetCounts(rules)...)
		}
		h, err = newHits(counts)
		return err
	})
	return h, err
}

// packetCounts reads the counters ("-c PACKETS BYTES") in the lines that have them.
func packetCounts(rules []string) []uint64 {
	var counts []uint64
	for _, rule := range rules {
		words := strings.Fields(rule)
		if at := slices.Index(words, "-c"); at >= 0 && at+1 < len(words) {
			if n, err := strconv.ParseUint(words[at+1], 10, 64); err == nil {
				counts = append(counts, n)
			}
		}
	}
	return counts
}

func (r *iptablesRedirect) Remove(ctx context.Context) error {
	return r.n.Do(ctx, func() error {
		var errs []error
		for _, c := range r.chains {
			if err := c.remove(r.tool); err != nil {
				errs = append(errs, fmt.Errorf("removing chain %s: %w", c.name, err))
			}
		}
		return errors.Join(errs...)
	})
}

// eachIptables calls f for the nat and mangle table of both backends, if they exist: listing a
// table with iptables would create it.
func eachIptables(f func(tool *iptables.IPTables, table string) error) error {
	nft, err := nftTables()
	if err != nil {
		return err
	}
	legacy := "iptables-legacy"
	if _, err := program.Find(legacy); err != nil {
		legacy = "iptables" // before 1.8 there is only this one
	}
	for _, backend := range []struct {
		program string
		tables  []string
	}{{legacy, legacyTables()}, {"iptables-nft", nft}} {
		if _, err := program.Find(backend.program); err != nil {
			continue // then no probe has used it
		}
		var tool *iptables.IPTables
		for _, table := range []string{"mangle", "nat"} {
			if !slices.Contains(backend.tables, table) {
				continue
			}
			if tool == nil {
				if tool, err = openIptables(backend.program); err != nil {
					return err
				}
			}
			if err := f(tool, table); err != nil {
				return fmt.Errorf("%s, table %s: %w", backend.program, table, err)
			}
		}
	}
	return nil
}

// legacyTables returns the tables of the kernel's legacy iptables, none if the kernel lacks it.
func legacyTables() []string {
	b, err := os.ReadFile("/proc/thread-self/net/ip_tables_names")
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}
