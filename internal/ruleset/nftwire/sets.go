package nftwire

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/nlattr"
	"nodegate/internal/ruleset"
)

// wireSet is a set or a map.
type wireSet struct {
	name     string
	out      *ruleset.NFTSet // nil for one without a name, which is part of a rule
	interval bool
	keyLen   int
	size     int // how many elements it may have; of one without a name, has. 0 where the kernel does not say it
	key      []kind
	data     []kind // of a map that leads to values
	elements []element
}

// element is as the kernel has it. The key and the data are bytes.
type element struct {
	key, data, comment string
	verdict            verdict
	end                bool // of an interval, which the element before it begins
}

func (d *Decoder) addSet(a *attributes) error {
	const handle = 16 // NFTA_SET_HANDLE
	name := string(a.text(unix.NFTA_SET_NAME))
	flags := a.number(unix.NFTA_SET_FLAGS)
	if name == "" || d.sets[name] != nil {
		return fmt.Errorf("set %q has no name of its own", name)
	}
	if flags&unix.NFT_SET_OBJECT != 0 {
		return fmt.Errorf("set %s leads to objects", name)
	}
	s := &wireSet{
		name: name, interval: flags&unix.NFT_SET_INTERVAL != 0,
		keyLen: int(a.number(unix.NFTA_SET_KEY_LEN)), key: kinds(uint32(a.number(unix.NFTA_SET_KEY_TYPE))),
	}
	if s.interval && (len(s.key) != 1 || s.key[0] != ipv4 && s.key[0] != ipv6) {
		return fmt.Errorf("set %s has intervals of something else than addresses", name)
	}
	if data := uint32(a.number(unix.NFTA_SET_DATA_TYPE)); flags&unix.NFT_SET_MAP != 0 && data != unix.NFT_DATA_VERDICT {
		s.data = kinds(data)
	}
	if a[unix.NFTA_SET_DESC] != nil {
		desc, err := split(a[unix.NFTA_SET_DESC])
		if err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
		s.size = int(desc.number(unix.NFTA_SET_DESC_SIZE))
	}
	if flags&unix.NFT_SET_ANONYMOUS == 0 {
		s.out = &ruleset.NFTSet{
			Name: name, Handle: int(a.number(handle)), Timeout: int(a.number(unix.NFTA_SET_TIMEOUT) / 1000),
		}
	}
	d.sets[name], d.names = s, append(d.names, name)
	return nil
}

func (d *Decoder) addElements(a *attributes) error {
	s := d.sets[string(a.text(unix.NFTA_SET_ELEM_LIST_SET))]
	if s == nil {
		return fmt.Errorf("elements of set %.60q, which the table does not have", a.text(unix.NFTA_SET_ELEM_LIST_SET))
	}
	for b := a[unix.NFTA_SET_ELEM_LIST_ELEMENTS]; len(b) > 0; {
		if d.items.Add(1) > maxItems {
			return fmt.Errorf("more than %d objects", maxItems)
		}
		_, one, rest, err := nlattr.Next(b)
		if err != nil {
			return err
		}
		b = rest
		if err := d.addElement(s, one); err != nil {
			return fmt.Errorf("set %s: %w", s.name, err)
		}
	}
	return nil
}

func (d *Decoder) addElement(s *wireSet, b []byte) error {
	a, err := split(b)
	if err != nil {
		return err
	}
	const keyEnd = 10 // NFTA_SET_ELEM_KEY_END
	flags := a.number(unix.NFTA_SET_ELEM_FLAGS)
	if flags&^unix.NFT_SET_ELEM_INTERVAL_END != 0 || a[keyEnd] != nil || a[unix.NFTA_SET_ELEM_OBJREF] != nil ||
		a[unix.NFTA_SET_ELEM_KEY] == nil {
		return errors.New("an element of a form that is not known")
	}
	key, _, err := d.data(a[unix.NFTA_SET_ELEM_KEY])
	if err != nil {
		return err
	}
	e := element{key: string(key), comment: comment(a[unix.NFTA_SET_ELEM_USERDATA]), end: flags != 0}
	if a[unix.NFTA_SET_ELEM_DATA] != nil {
		var data []byte
		if data, e.verdict, err = d.data(a[unix.NFTA_SET_ELEM_DATA]); err != nil {
			return err
		}
		e.data = string(data)
	}
	s.elements = append(s.elements, e)
	return nil
}

// list puts the elements of a set that has a name into the model, in the order of their keys: the kernel's differs from time to time.
func (s *wireSet) list() error {
	if err := s.each(func(e *element, key []string) error {
		if s.data != nil {
			return errors.New("a map to values")
		}
		one := ruleset.NFTElement{Key: key, Target: e.verdict.chain, Verdict: e.verdict.word, Comment: e.comment}
		s.out.Elements = append(s.out.Elements, one)
		return nil
	}); err != nil {
		return err
	}
	s.elements = nil
	return nil
}

// each calls yield with the elements in the order of their keys.
func (s *wireSet) each(yield func(e *element, key []string) error) error {
	order := strings.Compare
	if len(s.key) == 1 && s.key[0] == integer {
		order = func(a, b string) int { return cmp.Compare(native(a), native(b)) }
	}
	slices.SortFunc(s.elements, func(a, b element) int {
		if a.end != b.end && a.key == b.key {
			return map[bool]int{true: -1, false: 1}[a.end]
		}
		return order(a.key, b.key)
	})
	for i := range s.elements {
		e := &s.elements[i]
		if e.end {
			continue
		}
		key, err := texts(s.key, []byte(e.key))
		if err == nil && s.interval {
			key[0], err = s.until(e, s.elements[i+1:])
		}
		if err == nil {
			err = yield(e, key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// until returns the interval that an element begins: the one after it ends it, or begins the next.
func (s *wireSet) until(e *element, after []element) (string, error) {
	first, _ := netip.AddrFromSlice([]byte(e.key))
	if len(after) == 0 {
		return between(first, ruleset.Last(netip.PrefixFrom(first, 0))), nil
	}
	end, ok := netip.AddrFromSlice([]byte(after[0].key))
	if !ok || end.BitLen() != first.BitLen() || !first.Less(end) {
		return "", errors.New("an interval that ends before it begins")
	}
	return between(first, end.Prev()), nil
}
