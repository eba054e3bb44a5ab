package qemu

import (
	"strings"
	"testing"
)

func TestPlain(t *testing.T) {
	const raw = "\x1bcSeaBIOS\x1b[=3h\x1b[02;01Hme\x1b[02;03Hnu\x1b(B\n\x1b[2J\x1b[0;1;31m[FAILED]\x1b[0m Failed\r\n\x1b[?25hnode login: "
	if got, want := Plain(raw), "SeaBIOS\nmenu\n[FAILED] Failed\nnode login: "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRecording: the memory for an endlessly writing machine is bounded, and its latest output is
// kept.
func TestRecording(t *testing.T) {
	r := &Recording{}
	for range 3*mostConsole/1024 + 1 {
		if n, err := r.Write([]byte(strings.Repeat("x", 1023) + "\n")); n != 1024 || err != nil {
			t.Fatal(n, err)
		}
	}
	_, _ = r.Write([]byte("the end\n"))
	if got := r.Text(); len(got) > 2*mostConsole || Tail(got, 1) != "the end" {
		t.Errorf("kept %d bytes; the last line is %.20q", len(got), Tail(got, 1))
	}
}
