package program

import (
	"bytes"
	"errors"
)

// A program that floods its outputs must not use up the memory of the machine.
const (
	maxOutput = 16 << 20 // what may be larger is streamed
	maxStderr = 64 << 10 // enough to say what is wrong
)

// bounded keeps the first bytes that are written to it. Beyond them it returns an
// error, which ends the program, or drops them.
type bounded struct {
	kept  bytes.Buffer // not embedded: io.Copy would find its ReadFrom, which has no bound
	limit int
	drop  bool
	flood bool // more was written
}

func (b *bounded) Write(p []byte) (int, error) {
	fits := min(len(p), b.limit-b.kept.Len())
	b.kept.Write(p[:fits])
	b.flood = b.flood || fits < len(p)
	if b.flood && !b.drop {
		return fits, errFlood
	}
	return len(p), nil
}

var errFlood = errors.New("too much")
