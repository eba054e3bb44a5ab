package nftwire

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/nlattr"
)

// maxAttribute is the largest attribute type that this package reads.
const maxAttribute = unix.NFTA_SET_PAD + 2

// attributes holds the attributes of one message or nest, indexed by type. An element is nil if the
// attribute is missing.
type attributes [maxAttribute + 1][]byte

// splitAttributes reads attributes and skips unknown ones.
func splitAttributes(b []byte) (a attributes, err error) {
	err = nlattr.Split(b, a[:])
	return a, err
}

func maskOf(kinds ...int) (mask uint32) {
	for _, k := range kinds {
		mask |= 1 << k
	}
	return mask
}

// readAttributes reads the attributes of an expression. It returns an error if one of need is missing or if
// there is one in neither need nor may: an unknown attribute could change the meaning of the
// expression.
func readAttributes(b []byte, need, may uint32) (attributes, error) {
	var have uint32
	for rest := b; len(rest) > 0; {
		kind, _, after, err := nlattr.Next(rest)
		if err != nil {
			return attributes{}, err
		}
		if kind > 31 || (need|may)&(1<<kind) == 0 {
			return attributes{}, fmt.Errorf("unknown attribute %d", kind)
		}
		have, rest = have|1<<kind, after
	}
	if missing := need &^ have; missing != 0 {
		return attributes{}, fmt.Errorf("missing attribute %d", bits.TrailingZeros32(missing))
	}
	return splitAttributes(b)
}

// number returns a number of four or eight bytes, or 0 if it is missing.
func (a *attributes) number(kind int) uint64 {
	switch b := a[kind]; len(b) {
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	case 8:
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// text returns a string without its final zero byte. It aliases the message.
func (a *attributes) text(kind int) []byte {
	b := a[kind]
	if n := len(b); n > 0 && b[n-1] == 0 {
		return b[:n-1]
	}
	return b
}

// comment extracts the comment from nft's user data: a sequence of entries with a type byte (0:
// comment), a length byte and the text.
func comment(b []byte) string {
	for len(b) >= 2 && len(b) >= 2+int(b[1]) {
		if b[0] == 0 {
			return strings.TrimSuffix(string(b[2:2+b[1]]), "\x00")
		}
		b = b[2+b[1]:]
	}
	return ""
}

// verdict is the decision about a packet: a word, or a jump or goto (way) to a chain.
type verdict struct{ chain, word, way string }

// verdictWord returns nft's word for a verdict code (include/uapi/linux/netfilter/nf_tables.h,
// include/uapi/linux/netfilter.h).
func verdictWord(code int32) string {
	switch code {
	case unix.NFT_JUMP:
		return "jump"
	case unix.NFT_GOTO:
		return "goto"
	case unix.NFT_RETURN:
		return "return"
	case unix.NFT_CONTINUE:
		return "continue"
	case 0:
		return "drop"
	case 1:
		return "accept"
	}
	return ""
}

// readData reads an attribute of type NFTA_DATA: a value or a verdict.
func (d *Decoder) readData(b []byte) (value []byte, v verdict, err error) {
	a, err := splitAttributes(b)
	if err != nil {
		return nil, v, err
	}
	if a[unix.NFTA_DATA_VERDICT] == nil {
		return a[unix.NFTA_DATA_VALUE], v, nil
	}
	if a, err = splitAttributes(a[unix.NFTA_DATA_VERDICT]); err != nil {
		return nil, v, err
	}
	code := int32(a.number(unix.NFTA_VERDICT_CODE))
	switch word := verdictWord(code); word {
	case "":
		return nil, v, fmt.Errorf("unknown verdict %d", code)
	case "jump", "goto":
		v.way, v.chain = word, d.name(a.text(unix.NFTA_VERDICT_CHAIN))
	default:
		v.word = word
	}
	return nil, v, nil
}

// words returns a verdict in nft's syntax.
func (v verdict) words() string {
	if v.way != "" {
		return v.way + " " + v.chain
	}
	return v.word
}
