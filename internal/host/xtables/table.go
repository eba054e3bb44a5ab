package xtables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Table is a table in the kernel's form: its entries follow each other in Blob.
type Table struct {
	IPv6      bool
	Name      string
	Hooks     uint32    // a bit for each hook in which the table has a chain
	HookEntry [5]uint32 // offsets at which the built-in chains begin
	Underflow [5]uint32 // offsets of their policies
	Blob      []byte
	Count     uint32 // of entries
}

// Read returns a table of the thread's network namespace. Chain names are readable in its entries: each
// chain begins with an entry that contains its name (struct xt_error_target). The notes on Layout
// apply here too.
func Read(ipv6 bool, name string) (*Table, error) {
	const attempts = 6
	for range attempts {
		i, err := tableInfo(ipv6, name)
		if err != nil {
			return nil, fmt.Errorf("reading the size of table %s: %w", name, err)
		}
		all := make([]byte, entriesHead+int(i.sizeBytes))
		copy(all[:nameSize-1], name)
		binary.NativeEndian.PutUint32(all[nameSize:], i.sizeBytes)
		err = getOption(ipv6, getEntries, unsafe.Pointer(&all[0]), len(all))
		if err != nil && !errors.Is(err, unix.EAGAIN) { // the table's size has changed
			return nil, fmt.Errorf("reading table %s: %w", name, err)
		}
		if now, failed := tableInfo(ipv6, name); err == nil && failed == nil && now == i {
			return &Table{ipv6, name, i.validHooks, i.hookEntry, i.underflow, all[entriesHead:], i.entries}, nil
		}
	}
	return nil, fmt.Errorf("reading table %s: its size changed each time", name)
}

// Replace replaces a table of the thread's network namespace, which gets one if it lacks it. It takes no lock of the iptables
// programs: use it only in a namespace that no other program knows.
func Replace(t *Table) error {
	i, err := tableInfo(t.IPv6, t.Name)
	if err != nil {
		return fmt.Errorf("creating table %s: %w", t.Name, err)
	}
	const counterSize = 16 // struct xt_counters
	counters := make([]byte, max(1, i.entries)*counterSize)
	// struct ipt_replace; the kernel writes the old counters to the address in it
	b := make([]byte, nameSize, nameSize+64+len(t.Blob))
	copy(b[:nameSize-1], t.Name)
	for _, v := range slices.Concat([]uint32{t.Hooks, t.Count, uint32(len(t.Blob))}, t.HookEntry[:], t.Underflow[:], []uint32{i.entries}) {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	b = append(b, make([]byte, -len(b)&7)...)
	b = binary.NativeEndian.AppendUint64(b, uint64(uintptr(unsafe.Pointer(&counters[0]))))
	b = append(b, t.Blob...)
	const setReplace = 64 // IPT_SO_SET_REPLACE
	err = onSocket(t.IPv6, func(socket, level uintptr) unix.Errno {
		_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, socket, level, setReplace, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0)
		return errno
	})
	runtime.KeepAlive(counters)
	if err != nil {
		return fmt.Errorf("creating table %s: %w", t.Name, err)
	}
	return nil
}
