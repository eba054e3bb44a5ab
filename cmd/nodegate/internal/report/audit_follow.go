package report

import (
	"fmt"
	"io"
	"time"

	"nodegate/internal/audit"
)

// WriteConverged writes the Service ports that differed from the API at first and matched it later. It names only the first few.
func WriteConverged(w io.Writer, list []audit.Converged) error {
	const few = 10
	for i, c := range list {
		if i == few {
			_, err := fmt.Fprintf(w, "and %d more Service ports converged\n", len(list)-few)
			return err
		}
		if i == 0 {
			fmt.Fprintln(w)
		}
		if _, err := fmt.Fprintf(w, "%s (%s) converged after %.1f s\n", printable(c.Service), c.Family, c.After); err != nil {
			return err
		}
	}
	return nil
}

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
