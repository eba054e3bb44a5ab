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
	out      *ruleset.NFTSet // nil for an anonymous set, which is part of a rule
	interval bool
	keyLen   int
	size     int // for an anonymous set its number of elements, otherwise the maximum; 0 if the kernel does not report it
	key      []kind
	data     []kind // types of the values, if it is a map to values
	elements []element
}

// element is an element as the kernel sends it. The key and the data are raw bytes.
type element struct {
	key, data, comment string
	verdict            verdict
	end                bool // end of the interval that the previous element begins
}

func (d *Decoder) addSet(a *attributes) error {
	const handle = 16 // NFTA_SET_HANDLE
	name := string(a.text(unix.NFTA_SET_NAME))
	flags := a.number(unix.NFTA_SET_FLAGS)
	if name == "" || d.sets[name] != nil {
		return fmt.Errorf("the name of set %q is empty or not unique", name)
	}
	if flags&unix.NFT_SET_OBJECT != 0 {
		return fmt.Errorf("set %s is a map to objects, which is unsupported", name)
	}
	s := &wireSet{
		name: name, interval: flags&unix.NFT_SET_INTERVAL != 0,
		keyLen: int(a.number(unix.NFTA_SET_KEY_LEN)), key: kinds(uint32(a.number(unix.NFTA_SET_KEY_TYPE))),
	}
	if s.interval && (len(s.key) != 1 || s.key[0] != ipv4 && s.key[0] != ipv6) {
		return fmt.Errorf("set %s has intervals of a type other than addresses", name)
	}
	if data := uint32(a.number(unix.NFTA_SET_DATA_TYPE)); flags&unix.NFT_SET_MAP != 0 && data != unix.NFT_DATA_VERDICT {
		s.data = kinds(data)
	}
	if a[unix.NFTA_SET_DESC] != nil {
		desc, err := splitAttributes(a[unix.NFTA_SET_DESC])
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
		return fmt.Errorf("received elements of set %.60q, which is missing from the table", a.text(unix.NFTA_SET_ELEM_LIST_SET))
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
	a, err := splitAttributes(b)
	if err != nil {
		return err
	}
	const keyEnd = 10 // NFTA_SET_ELEM_KEY_END
	flags := a.number(unix.NFTA_SET_ELEM_FLAGS)
	if flags&^unix.NFT_SET_ELEM_INTERVAL_END != 0 || a[keyEnd] != nil || a[unix.NFTA_SET_ELEM_OBJREF] != nil ||
		a[unix.NFTA_SET_ELEM_KEY] == nil {
		return errors.New("unsupported form of element")
	}
	key, _, err := d.readData(a[unix.NFTA_SET_ELEM_KEY])
	if err != nil {
		return err
	}
	e := element{key: string(key), comment: comment(a[unix.NFTA_SET_ELEM_USERDATA]), end: flags != 0}
	if a[unix.NFTA_SET_ELEM_DATA] != nil {
		var data []byte
		if data, e.verdict, err = d.readData(a[unix.NFTA_SET_ELEM_DATA]); err != nil {
			return err
		}
		e.data = string(data)
	}
	s.elements = append(s.elements, e)
	return nil
}

// moveToModel copies the elements of a named set into the model, sorted by key because the kernel's order
// varies.
func (s *wireSet) moveToModel() error {
	if err := s.eachElement(func(e *element, key []string) error {
		if s.data != nil {
			return errors.New("unsupported map to values")
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

// eachElement calls yield with the elements, sorted by key.
func (s *wireSet) eachElement(yield func(e *element, key []string) error) error {
	order := strings.Compare
	if len(s.key) == 1 && s.key[0] == integer {
		order = func(a, b string) int { return cmp.Compare(nativeNumber(a), nativeNumber(b)) }
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
		key, err := partTexts(s.key, []byte(e.key))
		if err == nil && s.interval {
			key[0], err = s.intervalAt(e, s.elements[i+1:])
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

// intervalAt returns the interval that e begins. The next element ends it or begins the next interval.
func (s *wireSet) intervalAt(e *element, after []element) (string, error) {
	first, _ := netip.AddrFromSlice([]byte(e.key))
	if len(after) == 0 {
		return addressRange(first, ruleset.Last(netip.PrefixFrom(first, 0))), nil
	}
	end, ok := netip.AddrFromSlice([]byte(after[0].key))
	if !ok || end.BitLen() != first.BitLen() || !first.Less(end) {
		return "", errors.New("an interval ends before it begins")
	}
	return addressRange(first, end.Prev()), nil
}
