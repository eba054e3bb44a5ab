package qemu

import (
	"io"
	"regexp"
	"strings"
	"sync"
)

// mostConsole is what is kept of a console, the newest: a machine may write for ever.
const mostConsole = 16 << 20

// Recording is what came from a reader, up to now.
type Recording struct {
	mu    sync.Mutex
	kept  []byte
	ended chan struct{} // closed at the reader's end
}

// Record reads to the end, and closes what it read.
func Record(from io.ReadCloser) *Recording {
	r := &Recording{ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		defer from.Close()
		_, _ = io.Copy(r, from) // its end is the machine's, whatever it is called
	}()
	return r
}

func (r *Recording) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = append(r.kept, p...)
	if len(r.kept) > 2*mostConsole {
		r.kept = append([]byte(nil), r.kept[len(r.kept)-mostConsole:]...)
	}
	return len(p), nil
}

// Text returns what was kept.
func (r *Recording) Text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.kept)
}

// Plain returns console text without the terminal's control sequences and carriage returns; where the cursor
// was placed at the left, a line begins. (SeaBIOS places it within words too.)
func Plain(text string) string {
	text = regexp.MustCompile(`\x1b\[[0-9]+;0*1H`).ReplaceAllString(text, "\n")
	return regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]|\r`).ReplaceAllString(text, "")
}

// Tail returns the last n lines of text.
func Tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
