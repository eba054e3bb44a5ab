// Package xtables queries the kernel about the tables of iptables' legacy backend.
package xtables

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// info is struct ipt_getinfo in the kernel's include/uapi/linux/netfilter_ipv4/ip_tables.h; struct
// ip6t_getinfo has the same layout.
type info struct {
	name               [nameSize]byte
	validHooks         uint32
	hookEntry          [5]uint32 // offsets at which the built-in chains begin
	underflow          [5]uint32 // offsets of their policies
	entries, sizeBytes uint32
}

// Constants of include/uapi/linux/netfilter_ipv4/ip_tables.h and ip6_tables.h.
const (
	getInfo    = 64 // IPT_SO_GET_INFO, and IP6T_SO_GET_INFO
	getEntries = 65 // IPT_SO_GET_ENTRIES, and IP6T_SO_GET_ENTRIES
	nameSize   = 32
	// entriesHead is the size of struct ipt_get_entries on a 64-bit machine: the table's name, the
	// size of its entries, then the entries.
	entriesHead = nameSize + 8
)

// Layout returns a table's size, the number of its entries, and the offsets at which its built-in
// chains begin and end. The result changes whenever rules are added or removed, but rarely when one
// rule replaces another. The kernel creates a table that is queried, so pass only tables that Names
// lists. Layout needs CAP_NET_ADMIN.
func Layout(ipv6 bool, table string) (string, error) {
	i, err := tableInfo(ipv6, table)
	if err != nil {
		return "", fmt.Errorf("reading the size of table %s: %w", table, err)
	}
	return fmt.Sprintf("%x %x %x %x", i.hookEntry, i.underflow, i.entries, i.sizeBytes), nil
}

func tableInfo(ipv6 bool, table string) (i info, err error) {
	copy(i.name[:len(i.name)-1], table)
	return i, getOption(ipv6, getInfo, unsafe.Pointer(&i), int(unsafe.Sizeof(i)))
}

// getOption queries one socket option. size must be the size that the kernel expects.
func getOption(ipv6 bool, option uintptr, answer unsafe.Pointer, size int) error {
	return onSocket(ipv6, func(socket, level uintptr) unix.Errno {
		length := uint32(size)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, socket, level, option, uintptr(answer), uintptr(unsafe.Pointer(&length)), 0)
		return errno
	})
}

// onSocket calls do with a socket and the level of its options.
func onSocket(ipv6 bool, do func(socket, level uintptr) unix.Errno) error {
	domain, level := unix.AF_INET, unix.SOL_IP
	if ipv6 {
		domain, level = unix.AF_INET6, unix.SOL_IPV6
	}
	socket, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	if errno := do(uintptr(socket), uintptr(level)); errno != 0 {
		return errno
	}
	return nil
}
