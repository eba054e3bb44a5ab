package qemu

import (
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

func TestPlain(t *testing.T) {
	const raw = "\x1bcSeaBIOS\x1b[=3h\x1b[02;01Hme\x1b[02;03Hnu\x1b(B\n\x1b[2J\x1b[0;1;31m[FAILED]\x1b[0m Failed\r\n\x1b[?25hnode login: "
	got, want := Plain(raw), "SeaBIOS\nmenu\n[FAILED] Failed\nnode login: "
	assert.Equal(t, got, want)
}

// TestRecording: the memory for an endlessly writing machine is bounded, and its latest output is kept.
func TestRecording(t *testing.T) {
	r := &Recording{}
	for range 3*mostConsole/1024 + 1 {
		n, err := r.Write([]byte(strings.Repeat("x", 1023) + "\n"))
		require.True(t, n == 1024 && err == nil, "%v %v", n, err)
	}
	_, _ = r.Write([]byte("the end\n"))
	got := r.Text()
	assert.True(t, len(got) <= 2*mostConsole && Tail(got, 1) == "the end", "kept %d bytes; the last line is %.20q", len(got), Tail(got, 1))
}
