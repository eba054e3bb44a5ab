package report

import (
	"fmt"
	"io"
	"time"
)

// Following returns a function that shows on a terminal how many differences are being followed. It returns nil if w is not a terminal.
func Following(w io.Writer) func(open int, d time.Duration) {
	f := terminal(w)
	if f == nil {
		return nil
	}
	return func(open int, d time.Duration) {
		fmt.Fprint(f, "\r\x1b[K")
		if open > 0 {
			fmt.Fprintf(f, "following %s for %.0f s", Count(open, "difference"), d.Seconds())
		}
	}
}
