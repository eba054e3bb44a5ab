package nftables

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/netns"
	"nodegate/internal/nlattr"
)

// Others has the nf_tables objects of other programs that affect Kubernetes.
type Others struct {
	// Unlistable are sets and maps whose user data crashes nft before 1.1.2: "inet filter allowed".
	Unlistable []string `json:"unlistable,omitempty"`
}

// ReadOthers reads these objects. It fails with ErrTorn if they change too often to be read. It
// needs CAP_NET_ADMIN.
func ReadOthers(ctx context.Context) (o Others, err error) {
	c, err := dial(ctx, unix.NFPROTO_UNSPEC)
	if err != nil {
		return o, err
	}
	defer c.Close()
	for range tries {
		if o, err = c.others(); !errors.Is(err, ErrTorn) {
			break
		}
	}
	return o, err
}

func (c *conn) others() (Others, error) {
	var o Others
	c.family = unix.NFPROTO_UNSPEC
	err := c.ask(unix.NFT_MSG_GETSET, unix.NLM_F_DUMP, nil, func(_ int, b []byte) error {
		a, err := split(b[nfGenMsg:])
		if err == nil && typedByValue(a[unix.NFTA_SET_USERDATA]) {
			o.Unlistable = append(o.Unlistable, named(b[0], a[unix.NFTA_SET_TABLE], a[unix.NFTA_SET_NAME]))
		}
		return err
	})
	if err != nil {
		return o, fmt.Errorf("listing the sets of nf_tables: %w", err)
	}
	return o, nil
}

// typedByValue reports whether a set's user data gives its type by a bare value: a nested typeof (3
// for the key, 4 for the data) whose expression (0) is EXPR_VALUE (4). nft 1.1.2 and later write
// that for `type`; older versions dereference a null pointer when they read it (kubernetes#136786;
// the enumerations are in nftables' rule.h and expression.h).
func typedByValue(userData []byte) bool {
	const keyTypeof, dataTypeof, expression, value = 3, 4, 0, 4
	for kind, nested := range tlv(userData) {
		if kind != keyTypeof && kind != dataTypeof {
			continue
		}
		for kind, b := range tlv(nested) {
			if kind == expression && len(b) == 4 && binary.NativeEndian.Uint32(b) == value {
				return true
			}
		}
	}
	return false
}

// tlv iterates over libnftnl's user data: a type byte, a length byte, the content.
func tlv(b []byte) func(yield func(byte, []byte) bool) {
	return func(yield func(byte, []byte) bool) {
		for len(b) >= 2 && len(b) >= 2+int(b[1]) {
			if !yield(b[0], b[2:2+int(b[1])]) {
				return
			}
			b = b[2+int(b[1]):]
		}
	}
}

// attributes are one message's or nest's, by their type; nil if absent.
type attributes [unix.NFTA_SET_USERDATA + 1][]byte

func split(b []byte) (a attributes, err error) {
	err = nlattr.Split(b, a[:])
	return a, err
}

func text(b []byte) string { return strings.TrimRight(string(b), "\x00") }

func named(family byte, table, name []byte) string {
	return netns.FamilyName(family) + " " + text(table) + " " + text(name)
}
