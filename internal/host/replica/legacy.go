package replica

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"nodegate/internal/host/xtables"
)

// Offsets in struct ipt_entry and struct ip6t_entry, and in the target behind it.
const (
	entryNext4, entryNext6 = 90, 142 // next_offset; target_offset is before it
	targetName             = 2
	targetVerdict          = 32
	targetNameSize         = 30
)

// fall is the verdict of a rule without a target: the packet goes on to the next one.
const fall = -1000

// readLegacy reads the tables of the legacy backend, without the chains of Services that are not in the sample.
func (c *Capture) readLegacy(keep func(ports []string) map[string]bool) error {
	for _, ipv6 := range []bool{false, true} {
		file := "/proc/thread-self/net/ip_tables_names"
		if ipv6 {
			file = "/proc/thread-self/net/ip6_tables_names"
		}
		names, err := os.ReadFile(file)
		if err != nil {
			continue // the kernel has none
		}
		for _, table := range strings.Fields(string(names)) {
			t, err := xtables.Read(ipv6, table)
			if err != nil {
				return err
			}
			one, err := c.prune(t, keep)
			if err != nil {
				return fmt.Errorf("reading table %s of the legacy backend: %w", table, err)
			}
			c.Legacy = append(c.Legacy, one)
		}
	}
	slices.Reverse(c.Legacy) // the kernel lists the table first that was made last
	return nil
}

// entry is one entry of a legacy table.
type entry struct {
	at, size, target int // offsets
	chain            string
	verdict          int // of the standard target; an offset of an entry, fall, or negative
	standard         bool
	head             bool // it begins a chain, and has its name
}

// entries returns the entries of a table, and the chain that begins at each offset.
func entries(t *xtables.Table) ([]entry, map[int]string, error) {
	next := entryNext4
	if t.IPv6 {
		next = entryNext6
	}
	list := make([]entry, 0, t.Count)
	heads := map[int]string{}
	chain := ""
	for at := 0; at < len(t.Blob); {
		if at+next+2 > len(t.Blob) {
			return nil, nil, fmt.Errorf("an entry is cut off")
		}
		target, size := int(binary.NativeEndian.Uint16(t.Blob[at+next-2:])), int(binary.NativeEndian.Uint16(t.Blob[at+next:]))
		if size == 0 || at+size > len(t.Blob) || target+targetVerdict+4 > size {
			return nil, nil, fmt.Errorf("an entry is cut off")
		}
		e := entry{at: at, size: size, target: at + target}
		kind := t.Blob[e.target+targetName:]
		if e.standard = kind[0] == 0; e.standard {
			if e.verdict = int(int32(binary.NativeEndian.Uint32(t.Blob[e.target+targetVerdict:]))); e.verdict == at+size {
				e.verdict = fall
			}
		}
		last := at+size == len(t.Blob)
		if bytes.HasPrefix(kind, []byte("ERROR\x00")) && !last {
			text, _, _ := bytes.Cut(t.Blob[e.target+targetVerdict:min(e.target+targetVerdict+targetNameSize, len(t.Blob))], []byte{0})
			chain, e.head = string(text), true
			heads[at+size] = chain
		}
		for hook := range 5 {
			if t.Hooks>>hook&1 != 0 && int(t.HookEntry[hook]) == at {
				chain = builtin[hook]
			}
		}
		if e.chain = chain; last {
			e.chain = ""
		}
		list = append(list, e)
		at += size
	}
	return list, heads, nil
}

var builtin = [5]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// prune returns the table with the entries of kept chains, and adds their parts.
func (c *Capture) prune(t *xtables.Table, keep func(ports []string) map[string]bool) (Legacy, error) {
	list, heads, err := entries(t)
	if err != nil {
		return Legacy{}, err
	}
	kept := map[string]bool{"": true}
	jumps := map[string][]string{}
	ports := map[string]bool{}
	for _, e := range list {
		if port := ServicePort("", e.chain); e.head && port != "" && !ofEndpoint(e.chain) {
			ports[port] = true
		}
		if to := heads[e.verdict]; e.standard && to != "" {
			jumps[e.chain] = append(jumps[e.chain], to)
		}
	}
	sample := keep(slices.Sorted(maps.Keys(ports)))
	var visit func(chain string)
	visit = func(chain string) {
		if kept[chain] {
			return
		}
		kept[chain] = true
		for _, to := range jumps[chain] {
			if !dispatches(chain) {
				visit(to)
			}
		}
	}
	for _, e := range list {
		if kept[e.chain] {
			continue
		}
		if port := ServicePort("", e.chain); port == "" || sample[port] && !ofEndpoint(e.chain) {
			visit(e.chain)
		}
	}
	out := Legacy{Table: *t}
	drop := make([]bool, len(list))
	position := map[string]int{}
	family := byte(2)
	if t.IPv6 {
		family = 10
	}
	for i, e := range list {
		to := heads[e.verdict]
		if drop[i] = !kept[e.chain] || e.standard && to != "" && !kept[to]; drop[i] {
			if !e.head {
				position[e.chain]++
			}
			continue
		}
		part := -1
		policy := slices.Contains(t.Underflow[:], uint32(e.at)) && slices.Contains(builtin[:], e.chain)
		if ends := !e.head && !policy && e.standard && e.verdict == -5 && i+1 < len(list) && (list[i+1].head || i+2 == len(list)); !e.head &&
			e.chain != "" && !ends {
			position[e.chain]++
			p := Part{Kind: PartRule, Legacy: true, Family: family, Table: t.Name, Chain: e.chain, Position: position[e.chain],
				Own: isOwn("", e.chain) || to != "" && isOwn("", to), Target: to}
			if policy {
				p.Kind, p.Position, p.Forwards = PartPolicy, 0, e.chain == "FORWARD"
			}
			if !policy || e.verdict == -1 {
				c.Parts = append(c.Parts, p)
				part = len(c.Parts) - 1
			}
		}
		out.Parts = append(out.Parts, part)
	}
	out.Table, err = rewrite(t, list, heads, func(i int) bool { return drop[i] }, nil)
	return out, err
}

// rewrite returns the table without some entries: jumps, and where hooks begin and end, are moved. The policies in accept are accept.
func rewrite(t *xtables.Table, list []entry, heads map[int]string, drop func(int) bool, accept map[int]bool) (xtables.Table, error) {
	out := *t
	out.Blob, out.Count = nil, 0
	first := map[string]int{} // the new offset of the first rule of each chain
	size := 0
	var hooks, underflows int // a hook begins, or ends, at the first kept entry from there on
	for i, e := range list {
		for hook := range 5 {
			if int(t.HookEntry[hook]) <= e.at && hooks>>hook&1 == 0 && !drop(i) {
				out.HookEntry[hook] = uint32(size)
				hooks |= 1 << hook
			}
			if int(t.Underflow[hook]) <= e.at && underflows>>hook&1 == 0 && !drop(i) {
				out.Underflow[hook] = uint32(size)
				underflows |= 1 << hook
			}
		}
		if drop(i) {
			continue
		}
		if _, known := first[e.chain]; !known && !e.head {
			first[e.chain] = size
		}
		size += e.size
	}
	out.Blob = make([]byte, 0, size)
	for i, e := range list {
		if drop(i) {
			continue
		}
		start := len(out.Blob)
		out.Blob = append(out.Blob, t.Blob[e.at:e.at+e.size]...)
		out.Count++
		verdict := out.Blob[start+e.target-e.at+targetVerdict:]
		put := func(v int) { binary.NativeEndian.PutUint32(verdict, uint32(int32(v))) }
		switch {
		case !e.standard:
		case accept[i]:
			put(-2)
		case e.verdict == fall:
			put(start + e.size)
		case e.verdict >= 0:
			to, known := first[heads[e.verdict]]
			if !known {
				return out, fmt.Errorf("a rule of chain %s jumps to no chain", e.chain)
			}
			put(to)
		}
	}
	for hook := range 5 {
		if t.Hooks>>hook&1 == 0 {
			out.HookEntry[hook], out.Underflow[hook] = t.HookEntry[hook], t.Underflow[hook]
		}
	}
	return out, nil
}
