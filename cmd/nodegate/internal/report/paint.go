package report

import (
	"io"
	"os"

	"nodegate/internal/host"
	"nodegate/internal/plain"
	"nodegate/internal/verdict"
)

// Paint colours a word. Off a terminal it returns the word unchanged.
type Paint func(colour, word string) string

// The terminal colours (ECMA-48).
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Dim    = "2"
	Bold   = "1"
)

// Plain returns every word unchanged.
func Plain(_, word string) string { return word }

// Painter returns a Paint for w, which colours if w was made with colours.
func Painter(w io.Writer) Paint {
	if p, is := w.(*plain.Writer); is {
		return p.Paint
	}
	return Plain
}

// Colours reports whether w shows colours.
func Colours(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && terminal(w) != nil
}

// Verdict colours a word in the colour of a verdict.
func (p Paint) Verdict(v verdict.Verdict, word string) string {
	switch v {
	case verdict.Fail:
		return p(Red, word)
	case verdict.Unknown, verdict.Warn:
		return p(Yellow, word)
	case verdict.Pass:
		return p(Green, word)
	}
	return p(Dim, word)
}

// terminal returns the terminal behind w, or nil if w is not a terminal.
func terminal(w io.Writer) *os.File {
	f := plain.File(w)
	if f == nil || !host.IsTerminal(f) {
		return nil
	}
	return f
}
