package host

import (
	"encoding/binary"
	"errors"
	"iter"
)

var errNotCRI = errors.New("the runtime's answer is no message of CRI")

// protoField is a field of a message in protobuf's encoding.
type protoField struct {
	field uint64
	value []byte // of a number: as it is encoded
}

// protoEach yields the fields of a message, until one cannot be read.
func protoEach(message []byte) iter.Seq2[protoField, error] {
	return func(yield func(protoField, error) bool) {
		for len(message) > 0 {
			tag, n := binary.Uvarint(message)
			if n <= 0 {
				yield(protoField{}, errNotCRI)
				return
			}
			message = message[n:]
			size, n := binary.Uvarint(message)
			end := n
			if tag&7 == 2 { // bytes: their number comes first
				end = n + int(min(size, uint64(len(message))))
			}
			if n <= 0 || end > len(message) || tag&7 != 0 && tag&7 != 2 {
				yield(protoField{}, errNotCRI)
				return
			}
			value := message[:end]
			if tag&7 == 2 {
				value = message[n:end]
			}
			message = message[end:]
			if !yield(protoField{tag >> 3, value}, nil) {
				return
			}
		}
	}
}

// protoFields returns the last value of each field of a message.
func protoFields(message []byte) (map[uint64][]byte, error) {
	fields := map[uint64][]byte{}
	for f, err := range protoEach(message) {
		if err != nil {
			return nil, err
		}
		fields[f.field] = f.value
	}
	return fields, nil
}
