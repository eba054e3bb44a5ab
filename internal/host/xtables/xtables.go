// Package xtables asks the kernel about tables of the legacy backend of iptables.
package xtables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// info is struct ipt_getinfo of the kernel's include/uapi/linux/netfilter_ipv4/ip_tables.h; struct ip6t_getinfo is alike.
type info struct {
	name               [nameSize]byte
	validHooks         uint32
	hookEntry          [5]uint32 // where the built-in chains begin
	underflow          [5]uint32 // and their policies
	entries, sizeBytes uint32
}

// Of include/uapi/linux/netfilter_ipv4/ip_tables.h, and ip6_tables.h.
const (
	getInfo    = 64 // IPT_SO_GET_INFO, and IP6T_SO_GET_INFO
	getEntries = 65 // IPT_SO_GET_ENTRIES, and IP6T_SO_GET_ENTRIES
	nameSize   = 32
	// entriesHead is the size of struct ipt_get_entries on a machine of 64 bits: the table's name, the size of its entries, and these.
	entriesHead = nameSize + 8
)

// Layout returns the size of a table, the number of its entries, and where its built-in chains begin and end: what differs whenever rules
// are added or removed, and only seldom where one takes another's place. The kernel makes a table that it is asked for: ask only for those
// that Names has. It needs CAP_NET_ADMIN.
func Layout(ipv6 bool, table string) (string, error) {
	i, err := infoOf(ipv6, table)
	if err != nil {
		return "", fmt.Errorf("asking for the size of table %s: %w", table, err)
	}
	return fmt.Sprintf("%x %x %x %x", i.hookEntry, i.underflow, i.entries, i.sizeBytes), nil
}

// Entries returns the rules of a table as the kernel has them. The names of chains are in them as text: each begins with an entry that has
// its name (struct xt_error_target). For the rest, see Layout.
func Entries(ipv6 bool, table string) ([]byte, error) {
	const attempts = 5
	for left := attempts; ; left-- {
		i, err := infoOf(ipv6, table)
		if err != nil {
			return nil, fmt.Errorf("asking for the size of table %s: %w", table, err)
		}
		all := make([]byte, entriesHead+int(i.sizeBytes))
		copy(all[:nameSize-1], table)
		binary.NativeEndian.PutUint32(all[nameSize:], i.sizeBytes)
		err = ask(ipv6, getEntries, unsafe.Pointer(&all[0]), len(all))
		if err == nil {
			return all[entriesHead:], nil
		}
		if !errors.Is(err, unix.EAGAIN) || left == 0 { // its size has changed
			return nil, fmt.Errorf("reading table %s: %w", table, err)
		}
	}
}

func infoOf(ipv6 bool, table string) (i info, err error) {
	copy(i.name[:len(i.name)-1], table)
	return i, ask(ipv6, getInfo, unsafe.Pointer(&i), int(unsafe.Sizeof(i)))
}

// ask needs the size that the kernel expects.
func ask(ipv6 bool, option uintptr, answer unsafe.Pointer, size int) error {
	domain, level := unix.AF_INET, unix.SOL_IP
	if ipv6 {
		domain, level = unix.AF_INET6, unix.SOL_IPV6
	}
	socket, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	length := uint32(size)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(socket), uintptr(level), option,
		uintptr(answer), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
