package qemu

import (
	"io"
	"regexp"
	"strings"
	"sync"
)

// mostConsole bounds the console output that is kept, the latest part: a machine may write for ever.
const mostConsole = 16 << 20

// Recording is the data received from a reader up to now.
type Recording struct {
	mu    sync.Mutex
	kept  []byte
	ended chan struct{} // closed when the reader ends
}

// Record reads from the reader until it ends, and then closes it.
func Record(from io.ReadCloser) *Recording {
	r := &Recording{ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		defer from.Close()
		_, _ = io.Copy(r, from) // any error means that the machine has ended
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

// Text returns the data that was kept.
func (r *Recording) Text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.kept)
}

// Plain returns console text without carriage returns and the terminal's control sequences. A cursor position in the leftmost column
// becomes a line break. (SeaBIOS also moves the cursor within words.)
func Plain(text string) string {
	text = regexp.MustCompile(`\x1b\[[0-9]+;0*1H`).ReplaceAllString(text, "\n")
	return regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]|\r`).ReplaceAllString(text, "")
}

// Tail returns the last n lines of text.
func Tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
