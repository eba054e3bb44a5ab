package host

import (
	"context"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ethtool library reads the names of all features before every query: three ioctls, each of
// which waits for the lock that every link change holds (rtnl_lock), and 1 MiB of memory. The names
// are the same for every link of a kernel (net/ethtool/common.c, netdev_features_strings). So this
// file reads them once, and a query is one ioctl.

// featureWords is the capacity for 32-bit words of feature flags. The kernel uses two or three.
const featureWords = 8

// getFeatures is struct ethtool_gfeatures (linux/ethtool.h).
type getFeatures struct {
	cmd, size uint32
	words     [featureWords]struct{ available, requested, active, neverChanged uint32 }
}

// setFeatures is struct ethtool_sfeatures.
type setFeatures struct {
	cmd, size uint32
	words     [featureWords]struct{ valid, requested uint32 }
}

const stringsOfFeatures = 4 // ETH_SS_FEATURES

// setInfo is struct ethtool_sset_info for one set.
type setInfo struct {
	cmd, _ uint32
	mask   uint64
	count  uint32
}

// setStrings is struct ethtool_gstrings.
type setStrings struct {
	cmd, set, count uint32
	names           [32 * featureWords][32]byte // ETH_GSTRING_LEN
}

func (m *machineLinks) Features(_ context.Context, link string) (map[string]Feature, error) {
	names, err := m.featureNames(link)
	if err != nil {
		return nil, err
	}
	get := getFeatures{cmd: unix.ETHTOOL_GFEATURES, size: uint32(len(names)+31) / 32}
	if err := m.ethtoolIoctl(link, unsafe.Pointer(&get)); err != nil {
		return nil, linkErr("reading features", link, err)
	}
	features := make(map[string]Feature, len(names))
	for name, i := range names {
		w, bit := get.words[i/32], uint32(1)<<(i%32)
		features[name] = Feature{
			Available: w.available&bit != 0, Requested: w.requested&bit != 0,
			Active: w.active&bit != 0, NeverChanged: w.neverChanged&bit != 0,
		}
	}
	return features, nil
}

// setFeatures returns nil also for features that the driver has fixed or another feature blocks:
// ETHTOOL_SFEATURES reports these only in its flags.
func (m *machineLinks) setFeatures(link string, to map[string]string) error {
	names, err := m.featureNames(link)
	if err != nil {
		return err
	}
	set := setFeatures{cmd: unix.ETHTOOL_SFEATURES, size: uint32(len(names)+31) / 32}
	for name, value := range to {
		i, known := names[name]
		if !known {
			return fmt.Errorf("this kernel has no feature %q", name)
		}
		set.words[i/32].valid |= 1 << (i % 32)
		if value == "on" {
			set.words[i/32].requested |= 1 << (i % 32)
		}
	}
	return m.ethtoolIoctl(link, unsafe.Pointer(&set))
}

// featureNames maps the kernel's names of the features to their numbers.
func (m *machineLinks) featureNames(link string) (map[string]uint, error) {
	if m.names != nil {
		return m.names, nil
	}
	count := setInfo{cmd: unix.ETHTOOL_GSSET_INFO, mask: 1 << stringsOfFeatures}
	if err := m.ethtoolIoctl(link, unsafe.Pointer(&count)); err != nil {
		return nil, linkErr("counting features", link, err)
	}
	text := setStrings{cmd: unix.ETHTOOL_GSTRINGS, set: stringsOfFeatures, count: count.count}
	if int(text.count) > len(text.names) { // the kernel writes all names, even past the end of the buffer
		return nil, fmt.Errorf("reading the names of features: the kernel has %d, nodegate expects at most %d", text.count, len(text.names))
	}
	if err := m.ethtoolIoctl(link, unsafe.Pointer(&text)); err != nil {
		return nil, linkErr("reading the names of features", link, err)
	}
	names := make(map[string]uint, text.count)
	for i := range text.names[:text.count] {
		if name := unix.ByteSliceToString(text.names[i][:]); name != "" {
			names[name] = uint(i)
		}
	}
	if len(names) > 0 {
		m.names = names
	}
	return names, nil
}

// ethtoolIoctl sends SIOCETHTOOL for a link, with the command that data points to.
func (m *machineLinks) ethtoolIoctl(link string, data unsafe.Pointer) error {
	if m.fd == 0 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		m.fd = fd
	}
	request := struct { // struct ifreq (netdevice(7))
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [24 - unsafe.Sizeof(uintptr(0))]byte
	}{data: data}
	if len(link) >= len(request.name) {
		return unix.ENODEV
	}
	copy(request.name[:], link)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(m.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(data)
	if errno != 0 {
		return errno
	}
	return nil
}
