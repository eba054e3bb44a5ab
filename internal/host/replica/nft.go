package replica

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/wire"
)

// Attributes and messages of include/uapi/linux/netfilter/nf_tables.h that x/sys lacks.
const (
	chainFlags      = 10
	chainBinding    = 1 << 2
	setAnonymous    = 1 << 0
	tableUserData   = 6
	tableDormant    = 1 << 0
	getFlowtable    = 23
	newFlowtable    = 22
	flowtableHook   = 3
	flowtableDevs   = 3
	ruleCompat      = unix.NFTA_RULE_COMPAT | unix.NLA_F_NESTED
	elementMessage  = 16 << 10 // bytes of elements in one message
	readings        = 12
	netfilterHeader = 4 // struct nfgenmsg
)

// Unit is a group of messages that must be in one transaction: a table, a chain, or a rule with its anonymous sets.
type Unit struct {
	Messages []Message
	Part     int // an index of Capture.Parts, or -1
	Without  []Message
}

// Message is one message of nfnetlink, without its headers.
type Message struct {
	Kind    uint16
	Flags   uint16
	Family  byte
	Payload []byte
}

type chainID struct {
	family      byte
	table, name string
}

type nftChain struct {
	id      chainID
	message []byte
	service string // of which Service port it is, if any
	base    bool
	bound   bool // it belongs to one rule
}

type nftSet struct {
	id        chainID
	message   []byte
	anonymous bool
}

// nftReader reads the nf_tables of a namespace, without the chains of Services that are not in the sample.
type nftReader struct {
	*wire.Conn
	sample   map[string]bool // of Service ports
	chains   []*nftChain
	byID     map[chainID]*nftChain
	sets     map[chainID]*nftSet
	setOrder []chainID
	elements map[chainID][][]byte
	rules    map[chainID][][]byte
	kept     map[chainID]bool
	setIDs   uint32
}

func nfnetlink(family byte, attributes ...[]byte) []byte {
	return append([]byte{family, unix.NFNETLINK_V0, 0, 0}, bytes.Join(attributes, nil)...)
}

// list returns the messages of a dump: their families, and their attributes. An object that is gone yields nothing.
func (r *nftReader) list(subsystem, kind uint16, family byte, about ...[]byte) (families []byte, list [][]byte, err error) {
	all, err := r.Dump(subsystem<<8|kind, nfnetlink(family, about...))
	if errors.Is(err, unix.ENOENT) {
		return nil, nil, nil
	}
	for _, m := range all {
		if len(m) >= netfilterHeader {
			families, list = append(families, m[0]), append(list, m[netfilterHeader:])
		}
	}
	return families, list, err
}

func (r *nftReader) generation() (uint32, error) {
	answers, err := r.Ask(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0, nfnetlink(0))
	if err != nil || len(answers) == 0 || len(answers[0]) < netfilterHeader {
		return 0, fmt.Errorf("reading the generation of nf_tables: %w", errors.Join(err, errors.ErrUnsupported))
	}
	return uint32Of(attributes(answers[0][netfilterHeader:], unix.NFTA_GEN_ID)[unix.NFTA_GEN_ID]), nil
}

// readNFT adds the nf_tables of the thread's namespace. A reading counts if the generation stayed, or if two agree.
func (c *Capture) readNFT(s *wire.Conn, keep func(ports []string) map[string]bool) error {
	if !isLoaded("nf_tables") { // the question would load it
		return nil
	}
	var last [sha256.Size]byte
	parts := len(c.Parts)
	for range readings {
		c.Parts = c.Parts[:parts]
		r := &nftReader{Conn: s, byID: map[chainID]*nftChain{}, sets: map[chainID]*nftSet{}, elements: map[chainID][][]byte{},
			rules: map[chainID][][]byte{}, kept: map[chainID]bool{}}
		before, err := r.generation()
		if errors.Is(err, unix.EINVAL) || errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, unix.EPERM) {
			return nil // the kernel lacks nf_tables
		}
		if err != nil {
			return err
		}
		if err := r.read(keep); err != nil {
			return fmt.Errorf("reading nf_tables: %w", err)
		}
		if c.NFT, err = r.units(c); err != nil {
			return fmt.Errorf("reading nf_tables: %w", err)
		}
		after, err := r.generation()
		if err != nil || after == before {
			return err
		}
		sum := digest(c.NFT)
		if sum == last {
			return nil
		}
		last = sum
	}
	return errors.New("nf_tables changed during each reading")
}

func digest(units []Unit) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, u := range units {
		for _, m := range u.Messages {
			h.Write(m.Payload)
		}
	}
	h.Sum(sum[:0])
	return sum
}

func (r *nftReader) read(keep func(ports []string) map[string]bool) error {
	families, list, err := r.list(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETCHAIN, 0)
	if err != nil {
		return err
	}
	ports := map[string]bool{}
	for i, m := range list {
		a := attributes(m, chainFlags)
		c := &nftChain{id: chainID{families[i], name(a[unix.NFTA_CHAIN_TABLE]), name(a[unix.NFTA_CHAIN_NAME])}, message: m,
			base: a[unix.NFTA_CHAIN_POLICY] != nil, bound: uint32Of(a[chainFlags])&chainBinding != 0}
		if c.service = ServicePort(c.id.table, c.id.name); c.base {
			c.service = ""
		}
		if c.service != "" && !ofEndpoint(c.id.name) {
			ports[c.service] = true
		}
		r.chains, r.byID[c.id] = append(r.chains, c), c
	}
	r.sample = keep(slices.Sorted(maps.Keys(ports)))
	if err := r.readSets(); err != nil {
		return err
	}
	var todo []chainID
	add := func(id chainID) {
		if r.byID[id] != nil && !r.kept[id] {
			r.kept[id] = true
			todo = append(todo, id)
		}
	}
	for _, c := range r.chains {
		if c.service == "" || r.sample[c.service] && !ofEndpoint(c.id.name) {
			add(c.id)
		}
	}
	for id, elements := range r.elements { // verdict maps of other programs
		for _, e := range elements {
			for target := range jumps(e) {
				if id.table != kubeProxy {
					add(chainID{id.family, id.table, target})
				}
			}
		}
	}
	for len(todo) > 0 {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		_, rules, err := r.list(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETRULE, id.family, text(unix.NFTA_RULE_TABLE, id.table),
			text(unix.NFTA_RULE_CHAIN, id.name))
		if err != nil {
			return err
		}
		r.rules[id] = rules
		for _, rule := range rules {
			targets := slices.Collect(jumps(rule))
			for _, set := range r.used(id, rule) {
				elements, err := r.elementsOf(set)
				if err != nil {
					return err
				}
				for _, e := range elements {
					targets = slices.AppendSeq(targets, jumps(e))
				}
			}
			// The chains of the sample and of other programs take along those to which they jump.
			for _, target := range targets {
				if !dispatches(id.name) {
					add(chainID{id.family, id.table, target})
				}
			}
		}
	}
	return nil
}

func (r *nftReader) readSets() error {
	families, list, err := r.list(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETSET, 0)
	if err != nil {
		return err
	}
	for i, m := range list {
		a := attributes(m, unix.NFTA_SET_FLAGS)
		s := &nftSet{id: chainID{families[i], name(a[unix.NFTA_SET_TABLE]), name(a[unix.NFTA_SET_NAME])}, message: m,
			anonymous: uint32Of(a[unix.NFTA_SET_FLAGS])&setAnonymous != 0}
		r.sets[s.id] = s
		r.setOrder = append(r.setOrder, s.id)
		if !s.anonymous && ServicePort(s.id.table, s.id.name) == "" { // not the addresses of an endpoint's clients
			if _, err := r.elementsOf(s.id); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *nftReader) elementsOf(id chainID) ([][]byte, error) {
	if list, known := r.elements[id]; known {
		return list, nil
	}
	_, messages, err := r.list(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETSETELEM, id.family,
		text(unix.NFTA_SET_ELEM_LIST_TABLE, id.table), text(unix.NFTA_SET_ELEM_LIST_SET, id.name))
	list := [][]byte{}
	for _, m := range messages {
		each(m, func(kind int, value, _ []byte) {
			if kind == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				each(value, func(_ int, _, whole []byte) { list = append(list, whole) })
			}
		})
	}
	r.elements[id] = list
	return list, err
}

// used returns the anonymous sets of a rule.
func (r *nftReader) used(chain chainID, rule []byte) (list []chainID) {
	for _, prefix := range []string{"__set", "__map"} {
		for rest := rule; ; {
			at := bytes.Index(rest, []byte(prefix))
			if at < 0 {
				break
			}
			one, after, _ := bytes.Cut(rest[at:], []byte{0})
			id := chainID{chain.family, chain.table, string(one)}
			if s := r.sets[id]; s != nil && s.anonymous && !slices.Contains(list, id) {
				list = append(list, id)
			}
			rest = after
		}
	}
	return list
}

// leadsOut reports whether a rule or an element leads to a Service's chain that is left out.
func (r *nftReader) leadsOut(of chainID, b []byte) bool {
	for target := range jumps(b) {
		if ServicePort(of.table, target) != "" && !r.kept[chainID{of.family, of.table, target}] {
			return true
		}
	}
	return false
}

// jumps yields the targets of the verdicts in b: the code of a jump or a goto, and the name of a chain.
func jumps(b []byte) func(yield func(string) bool) {
	code := attribute(unix.NFTA_VERDICT_CODE, []byte{0xff, 0xff, 0xff, 0})[:7]
	return func(yield func(string) bool) {
		for {
			at := bytes.Index(b, code)
			if at < 0 || at+12 > len(b) {
				return
			}
			last, chain := b[at+7], b[at+8:]
			if b = chain; last != 0xfd && last != 0xfc || binary.NativeEndian.Uint16(chain[2:]) != unix.NFTA_VERDICT_CHAIN {
				continue
			}
			size := int(binary.NativeEndian.Uint16(chain))
			if size > 4 && size <= len(chain) && !yield(name(chain[4:size])) {
				return
			}
		}
	}
}
