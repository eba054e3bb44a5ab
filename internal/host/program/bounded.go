package program

import (
	"bytes"
	"errors"
)

// Limits, so that a program that floods its outputs does not exhaust the machine's memory.
const (
	maxOutput = 16 << 20 // larger outputs are streamed
	maxStderr = 64 << 10 // enough for an error message
)

// bounded keeps the first bytes that are written to it. It drops further bytes, or returns an
// error, which ends the program.
type bounded struct {
	kept  bytes.Buffer // not embedded: io.Copy would use its ReadFrom, which is unbounded
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
