// Package xtables asks the kernel about tables of the legacy backend of iptables.
package xtables

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// info is struct ipt_getinfo of the kernel's include/uapi/linux/netfilter_ipv4/ip_tables.h; struct ip6t_getinfo is alike.
type info struct {
	name               [32]byte
	validHooks         uint32
	hookEntry          [5]uint32 // where the built-in chains begin
	underflow          [5]uint32 // and their policies
	entries, sizeBytes uint32
}

// getInfo is IPT_SO_GET_INFO, and IP6T_SO_GET_INFO.
const getInfo = 64

// Layout returns the size of a table, the number of its entries, and where its built-in chains begin and end: what differs whenever rules
// are added or removed, and only seldom where one takes another's place. The kernel makes a table that it is asked for: ask only for those that
// /proc/net/ip_tables_names has, or ip6_tables_names. It needs CAP_NET_ADMIN.
func Layout(ipv6 bool, table string) (string, error) {
	domain, level := unix.AF_INET, unix.SOL_IP
	if ipv6 {
		domain, level = unix.AF_INET6, unix.SOL_IPV6
	}
	socket, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("asking for the size of table %s: %w", table, err)
	}
	defer unix.Close(socket)
	var i info
	copy(i.name[:len(i.name)-1], table)
	size := uint32(unsafe.Sizeof(i)) // the kernel takes no other
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(socket), uintptr(level), getInfo,
		uintptr(unsafe.Pointer(&i)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return "", fmt.Errorf("asking for the size of table %s: %w", table, errno)
	}
	return fmt.Sprintf("%x %x %x %x", i.hookEntry, i.underflow, i.entries, i.sizeBytes), nil
}
