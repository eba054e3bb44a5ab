package nftables

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/activity"
	"nodegate/internal/host/wire"
	"nodegate/internal/ruleset"
	"nodegate/internal/ruleset/nftwire"
)

// tries bounds how often a table is read if it changes during the read.
const tries = 5

// Generation returns a string that differs whenever the rules of nf_tables differ. It needs
// CAP_NET_ADMIN.
func Generation(ctx context.Context) (string, error) {
	c, err := dial(ctx, unix.NFPROTO_UNSPEC)
	if err != nil {
		return "", fmt.Errorf("reading the generation of the rules: %w", err)
	}
	defer c.Close()
	id, err := c.generation()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%08x", id), nil
}

// Read returns kube-proxy's table of a family, or fs.ErrNotExist if it does not exist. The whole
// result belongs to one generation; if the rules change too often, Read fails with ErrTorn. It
// needs CAP_NET_ADMIN.
func Read(ctx context.Context, family string) (*ruleset.NFTTable, error) {
	defer activity.Doing(ctx, "netlink: table "+family+" "+ruleset.KubeProxyTable)()
	conns := make(team, 0, readers)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range min(readers, runtime.GOMAXPROCS(0)) {
		c, err := dial(ctx, protocolOf(family)) // here, because another thread could be in another namespace
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
	}
	var t *ruleset.NFTTable
	err := whole(ctx, func() error {
		return conns.steady(func() (err error) {
			t, err = conns.table(family)
			return err
		})
	})
	return t, err
}

// readers is the number of sockets that query concurrently. Finding one of many sets takes the
// kernel longer than sending its elements.
const readers = 4

type team []*conn

// each calls do for every number below n, on all sockets concurrently, until one call fails.
func (t team) each(n int, do func(member, i int) error) error {
	var next atomic.Int64
	errs := make([]error, len(t))
	var all sync.WaitGroup
	for member := range t {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if errs[member] = do(member, i); errs[member] != nil {
					next.Store(int64(n))
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// steady calls read, and fails with ErrTorn unless everything that it read belongs to one
// generation.
func (t team) steady(read func() error) error {
	c := t[0]
	c.fixed = 0
	generation, err := c.generation()
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("the kernel does not have nf_tables: %w", errors.ErrUnsupported)
	}
	if err != nil {
		return err
	}
	for _, member := range t {
		member.fixed = generation
	}
	err = read()
	c.fixed = 0
	now, failed := c.generation()
	if failed == nil && now != generation {
		return ErrTorn
	}
	return cmp.Or(err, failed)
}

// whole repeats read while it fails with ErrTorn.
func whole(ctx context.Context, read func() error) error {
	err := ErrTorn
	for i := 0; i < tries && errors.Is(err, ErrTorn); i++ {
		err = read()
	}
	return cmp.Or(ctx.Err(), err)
}

func protocolOf(family string) uint8 {
	return map[string]uint8{ruleset.IPv4: unix.NFPROTO_IPV4, ruleset.IPv6: unix.NFPROTO_IPV6}[family]
}

// table reads the table once.
func (t team) table(family string) (*ruleset.NFTTable, error) {
	of := [][]byte{called(unix.NFTA_RULE_TABLE, ruleset.KubeProxyTable)} // sets and the other objects use the same number
	c := t[0]
	if err := c.ask(unix.NFT_MSG_GETTABLE, unix.NLM_F_ACK, of, func(int, []byte) error { return nil }); errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("no table %s %s: %w", family, ruleset.KubeProxyTable, fs.ErrNotExist)
	} else if err != nil {
		return nil, err
	}
	d := nftwire.New(family)
	if err := c.ask(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, nil, d.Add); err != nil {
		return nil, err
	}
	if err := c.ask(unix.NFT_MSG_GETSET, unix.NLM_F_DUMP, of, d.Add); err != nil {
		return nil, err
	}
	sets := d.Sets()
	err := t.each(len(sets), func(member, i int) error { return t[member].elements(d, sets[i]) })
	if err != nil {
		return nil, err
	}
	// A dump of all rules would count from the first rule again for each 32 KiB.
	chains, rules := d.Chains(), make([]*nftwire.Rules, len(t))
	for i := range rules {
		rules[i] = d.Rules()
	}
	err = t.each(len(chains), func(member, i int) error {
		chain := [][]byte{of[0], called(unix.NFTA_RULE_CHAIN, chains[i].Name)}
		rules[member].Of = chains[i].Name
		return t[member].ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, chain, rules[member].Add)
	})
	if err != nil {
		return nil, err
	}
	return d.Table()
}

// elements reads the elements of a set. The kernel searches a list of all sets for it: once if
// elements are requested by their keys, three times for a dump (nft_set_dump_ctx_init, and
// nf_tables_dump_set for each part and for the end).
func (c *conn) elements(d *nftwire.Decoder, s nftwire.Set) error {
	set := [][]byte{called(unix.NFTA_SET_ELEM_LIST_TABLE, ruleset.KubeProxyTable), called(unix.NFTA_SET_ELEM_LIST_SET, s.Name)}
	if 0 < s.Numbers && s.Numbers <= singly {
		err := c.ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_ACK, append(set, numbers(s.Numbers)), d.Add)
		if refused := unix.Errno(0); !errors.As(err, &refused) {
			return err
		}
		d.Forget(s.Name)
	}
	err := c.ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, set, d.Add)
	if errors.Is(err, unix.ENOENT) {
		return ErrTorn // it existed before
	}
	return err
}

// singly bounds the elements requested by key: each is a message, and all must fit into the socket's buffer.
const singly = 64

// numbers returns the attribute that requests the elements with the keys 0 to n-1, the values of
// numgen.
func numbers(n int) []byte {
	var b []byte
	for i := range n {
		number := wire.Attribute(unix.NFTA_DATA_VALUE, binary.NativeEndian.AppendUint32(nil, uint32(i)))
		b = append(b, wire.Attribute(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, wire.Attribute(unix.NFTA_SET_ELEM_KEY|unix.NLA_F_NESTED, number))...)
	}
	return wire.Attribute(unix.NFTA_SET_ELEM_LIST_ELEMENTS|unix.NLA_F_NESTED, b)
}
