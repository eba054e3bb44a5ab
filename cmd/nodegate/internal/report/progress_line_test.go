package report

import (
	"bytes"
	"testing"
)

// TestStatusLine: the status is one line, no wider than the terminal, and text from a machine cannot control the terminal.
func TestStatusLine(t *testing.T) {
	var b bytes.Buffer
	show := statusLine(&b, func() int { return 12 })
	show("boot 1: \x1b[2J\tmore")
	show("")
	if got, want := b.String(), "\r\x1b[Kboot 1: \\u0\r\x1b[K"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	StatusLine(&b)("no terminal")
	if b.Len() != len("\r\x1b[Kboot 1: \\u0\r\x1b[K") {
		t.Errorf("a writer that is not a terminal got %q", b.String())
	}
}
