package report

import (
	"fmt"
	"io"
	"strings"

	"nodegate/internal/host"
	"nodegate/internal/plain"
)

// Progress returns what draws a bar on a terminal; on anything else it is nil.
func Progress(w io.Writer) func(done, failed, total int) {
	f := plain.File(w)
	if f == nil || !host.IsTerminal(f) {
		return nil
	}
	const width = 40
	return func(done, failed, total int) {
		fmt.Fprintf(f, "\r[%-*s] %d/%d, %d failed", width, strings.Repeat("#", width*done/total), done, total, failed)
		if done == total {
			fmt.Fprint(f, "\r\x1b[K")
		}
	}
}
