package report

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"nodegate/internal/host"
	"nodegate/internal/plain"
)

// terminal returns the terminal behind w, or nil if w is not a terminal.
func terminal(w io.Writer) *os.File {
	f := plain.File(w)
	if f == nil || !host.IsTerminal(f) {
		return nil
	}
	return f
}

// Progress returns a function that draws a progress bar on a terminal. It returns nil if w is not a terminal.
func Progress(w io.Writer) func(done, failed, total int) {
	f := terminal(w)
	if f == nil {
		return nil
	}
	return bar(f, time.Now)
}

// bar returns a function that draws at most ten times a second, and erases the bar at the end.
func bar(w io.Writer, now func() time.Time) func(done, failed, total int) {
	const width = 40
	var drawn time.Time
	return func(done, failed, total int) {
		switch t := now(); {
		case done == total:
			fmt.Fprint(w, "\r\x1b[K")
		case t.Sub(drawn) >= time.Second/10:
			drawn = t
			fmt.Fprintf(w, "\r[%-*s] %d/%d, %d failed", width, strings.Repeat("#", width*done/total), done, total, failed)
		}
	}
}
