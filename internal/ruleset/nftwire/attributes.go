package nftwire

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/nlattr"
)

// maxAttribute is the largest attribute that anything here reads.
const maxAttribute = unix.NFTA_SET_PAD + 2

// attributes are those of one message or nest, by their type; nil where there is none.
type attributes [maxAttribute + 1][]byte

// split reads attributes and ignores those of unknown types.
func split(b []byte) (a attributes, err error) {
	err = nlattr.Split(b, a[:])
	return a, err
}

func set(kinds ...int) (mask uint32) {
	for _, k := range kinds {
		mask |= 1 << k
	}
	return mask
}

// only reads the attributes of an expression: all that it needs, and none but these and those that it may have. What a kernel has
// to say beside them could change what the expression means.
func only(b []byte, need, may uint32) (attributes, error) {
	var have uint32
	for rest := b; len(rest) > 0; {
		kind, _, after, err := nlattr.Next(rest)
		if err != nil {
			return attributes{}, err
		}
		if kind > 31 || (need|may)&(1<<kind) == 0 {
			return attributes{}, fmt.Errorf("attribute %d is not known", kind)
		}
		have, rest = have|1<<kind, after
	}
	if missing := need &^ have; missing != 0 {
		return attributes{}, fmt.Errorf("attribute %d is missing", bits.TrailingZeros32(missing))
	}
	return split(b)
}

// number returns a number of four or eight bytes, 0 where there is none.
func (a *attributes) number(kind int) uint64 {
	switch b := a[kind]; len(b) {
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	case 8:
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// text returns a string without its final zero. It is part of the message.
func (a *attributes) text(kind int) []byte {
	b := a[kind]
	if n := len(b); n > 0 && b[n-1] == 0 {
		return b[:n-1]
	}
	return b
}

// comment reads the comment out of what nft keeps for itself: a byte for the type, 0, one for the length, and the text.
func comment(b []byte) string {
	for len(b) >= 2 && len(b) >= 2+int(b[1]) {
		if b[0] == 0 {
			return strings.TrimSuffix(string(b[2:2+b[1]]), "\x00")
		}
		b = b[2+b[1]:]
	}
	return ""
}

// verdict is where a packet goes.
type verdict struct{ chain, word, way string }

// verdictCodes are in nft's words (include/uapi/linux/netfilter/nf_tables.h, include/uapi/linux/netfilter.h).
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

// data reads an attribute of the kind NFTA_DATA: a value, or a verdict.
func (d *Decoder) data(b []byte) (value []byte, v verdict, err error) {
	a, err := split(b)
	if err != nil {
		return nil, v, err
	}
	if a[unix.NFTA_DATA_VERDICT] == nil {
		return a[unix.NFTA_DATA_VALUE], v, nil
	}
	if a, err = split(a[unix.NFTA_DATA_VERDICT]); err != nil {
		return nil, v, err
	}
	code := int32(a.number(unix.NFTA_VERDICT_CODE))
	switch word := verdictWord(code); word {
	case "":
		return nil, v, fmt.Errorf("verdict %d is not known", code)
	case "jump", "goto":
		v.way, v.chain = word, d.name(a.text(unix.NFTA_VERDICT_CHAIN))
	default:
		v.word = word
	}
	return nil, v, nil
}

// words returns a verdict as nft prints it.
func (v verdict) words() string {
	if v.way != "" {
		return v.way + " " + v.chain
	}
	return v.word
}
