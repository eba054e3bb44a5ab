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
	"nodegate/internal/ruleset"
	"nodegate/internal/ruleset/nftwire"
)

// tries is how often a table is read that changes meanwhile.
const tries = 5

// Generation returns what differs whenever the rules of nf_tables do. It needs CAP_NET_ADMIN.
func Generation(ctx context.Context) (string, error) {
	c, err := dial(ctx, unix.NFPROTO_UNSPEC)
	if err != nil {
		return "", fmt.Errorf("asking for the generation of the rules: %w", err)
	}
	defer c.close()
	id, err := c.generation()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%08x", id), nil
}

// Read returns kube-proxy's table of a family: fs.ErrNotExist where there is none. All of it is of one generation; where the rules
// change too often for that it fails with ErrTorn. It needs CAP_NET_ADMIN.
func Read(ctx context.Context, family string) (*ruleset.NFTTable, error) {
	defer activity.Doing(ctx, "netlink: table "+family+" "+ruleset.KubeProxyTable)()
	conns := make(team, 0, readers)
	defer func() {
		for _, c := range conns {
			c.close()
		}
	}()
	for range min(readers, runtime.GOMAXPROCS(0)) {
		c, err := dial(ctx, protocolOf(family)) // here: another thread could be in another namespace
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

// readers is how many sockets ask at the same time. To find one of many sets takes the kernel longer than to send its elements.
const readers = 4

type team []*conn

// each calls do for every number below n, by all sockets at the same time, until one fails.
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

// steady calls read, and fails with ErrTorn unless all that it read is of one generation.
func (t team) steady(read func() error) error {
	c := t[0]
	c.fixed = 0
	generation, err := c.generation()
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("the kernel has no nf_tables: %w", errors.ErrUnsupported)
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

// whole calls read again where it was torn.
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
	of := []attribute{called(unix.NFTA_RULE_TABLE, ruleset.KubeProxyTable)} // the number is the same of sets and the rest
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
	// A dump of all rules begins to count at the first one again for each 32 KiB.
	chains, rules := d.Chains(), make([]*nftwire.Rules, len(t))
	for i := range rules {
		rules[i] = d.Rules()
	}
	err = t.each(len(chains), func(member, i int) error {
		chain := []attribute{of[0], called(unix.NFTA_RULE_CHAIN, chains[i].Name)}
		rules[member].Of = chains[i].Name
		return t[member].ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, chain, rules[member].Add)
	})
	if err != nil {
		return nil, err
	}
	return d.Table()
}

// elements reads those of a set. The kernel goes through a list of all sets to find one: once for elements that are asked for by their
// keys, thrice for a dump (nft_set_dump_ctx_init, and nf_tables_dump_set for each part and for the end).
func (c *conn) elements(d *nftwire.Decoder, s nftwire.Set) error {
	set := []attribute{called(unix.NFTA_SET_ELEM_LIST_TABLE, ruleset.KubeProxyTable), called(unix.NFTA_SET_ELEM_LIST_SET, s.Name)}
	if 0 < s.Numbers && s.Numbers <= singly {
		err := c.ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_ACK, append(set, numbers(s.Numbers)), d.Add)
		if refused := unix.Errno(0); !errors.As(err, &refused) {
			return err
		}
		d.Forget(s.Name)
	}
	err := c.ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, set, d.Add)
	if errors.Is(err, unix.ENOENT) {
		return ErrTorn // it was there
	}
	return err
}

const (
	singly  = 64      // elements are asked for by their keys, at most: each is a message, and all have to fit into the socket's buffer
	largest = 4 << 10 // bytes that such a message takes there, at most
)

// numbers returns the part of a request that names the elements with the keys 0 to n-1, as numgen makes them.
func numbers(n int) attribute {
	var b []byte
	for i := range n {
		for depth, kind := range []uint16{unix.NFTA_LIST_ELEM, unix.NFTA_SET_ELEM_KEY} {
			b = binary.NativeEndian.AppendUint16(b, uint16(4+(3-depth)*unix.SizeofNlAttr))
			b = binary.NativeEndian.AppendUint16(b, kind|unix.NLA_F_NESTED)
		}
		b = binary.NativeEndian.AppendUint16(b, 4+unix.SizeofNlAttr)
		b = binary.NativeEndian.AppendUint16(b, unix.NFTA_DATA_VALUE)
		b = binary.NativeEndian.AppendUint32(b, uint32(i))
	}
	return attribute{unix.NFTA_SET_ELEM_LIST_ELEMENTS | unix.NLA_F_NESTED, string(b)}
}
