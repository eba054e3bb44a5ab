// Package nlattr reads the attributes of netlink messages. Each has a length, a type and a value, and is padded to four bytes
// (struct nlattr of include/uapi/linux/netlink.h). Every reader of netlink in this module uses it.
package nlattr

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// ErrCut is the error of an attribute that is longer than its message, or shorter than its own header.
var ErrCut = errors.New("an attribute is cut off")

// Next splits the first attribute off b. The type is without its two flags. value and rest are parts of b; appending to value does
// not overwrite rest.
func Next(b []byte) (kind int, value, rest []byte, err error) {
	if len(b) < unix.SizeofNlAttr {
		return 0, nil, nil, ErrCut
	}
	size := int(binary.NativeEndian.Uint16(b))
	if size < unix.SizeofNlAttr || size > len(b) {
		return 0, nil, nil, ErrCut
	}
	kind = int(binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER))
	return kind, b[unix.SizeofNlAttr:size:size], b[min(len(b), (size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):], nil
}

// Split stores the values of the attributes in b at their types. It ignores types for which to has no place; the last of several
// attributes of one type counts.
func Split(b []byte, to [][]byte) error {
	for len(b) > 0 {
		kind, value, rest, err := Next(b)
		if err != nil {
			return err
		}
		if kind < len(to) {
			to[kind] = value
		}
		b = rest
	}
	return nil
}
