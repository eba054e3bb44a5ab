package replica

import (
	"bytes"
	"encoding/binary"

	"nodegate/internal/host/wire"
	"nodegate/internal/nlattr"
)

func attribute(kind uint16, value ...[]byte) []byte { return wire.Attribute(kind, value...) }

func text(kind uint16, value string) []byte { return attribute(kind, []byte(value), []byte{0}) }

func number(kind uint16, value int) []byte { // of rtnetlink, in the byte order of the machine
	return attribute(kind, binary.NativeEndian.AppendUint32(nil, uint32(value)))
}

func network(kind uint16, value uint32) []byte { // of nfnetlink
	return attribute(kind, binary.BigEndian.AppendUint32(nil, value))
}

// attributes returns the values of the attributes of b with types up to most. It ends at a torn attribute.
func attributes(b []byte, most int) [][]byte {
	list := make([][]byte, most+1)
	_ = nlattr.Split(b, list) // what precedes a torn attribute is there
	return list
}

// filter returns the attributes for which keep returns true, as they are.
func filter(b []byte, keep func(kind int) bool) []byte {
	out := make([]byte, 0, len(b)+3)
	for len(b) > 0 {
		kind, _, rest, err := nlattr.Next(b)
		if err != nil {
			break
		}
		if one := b[:len(b)-len(rest)]; keep(kind) {
			out = append(out, one...)
			out = append(out, make([]byte, wire.Align(len(one))-len(one))...)
		}
		b = rest
	}
	return out
}

// each passes every attribute of b to do: its type, value and whole form.
func each(b []byte, do func(kind int, value, whole []byte)) {
	for len(b) > 0 {
		kind, value, rest, err := nlattr.Next(b)
		if err != nil {
			return
		}
		do(kind, value, b[:len(b)-len(rest)])
		b = rest
	}
}

func name(b []byte) string { return string(bytes.TrimRight(b, "\x00")) }

func uint32Of(b []byte) uint32 { // of nfnetlink
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func intOf(b []byte) int { // of rtnetlink
	if len(b) != 4 {
		return 0
	}
	return int(int32(binary.NativeEndian.Uint32(b)))
}
