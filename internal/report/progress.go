package report

import (
	"fmt"
	"io"
	"os"
	"strings"

	"nodegate/internal/host"
)

// Progress returns what draws a bar on a terminal; on anything else it is nil.
func Progress(w io.Writer) func(done, failed, total int) {
	f, ok := w.(*os.File)
	if !ok || !host.IsTerminal(f) {
		return nil
	}
	const width = 40
	return func(done, failed, total int) {
		fmt.Fprintf(w, "\r[%-*s] %d/%d, %d failed", width, strings.Repeat("#", width*done/total), done, total, failed)
		if done == total {
			fmt.Fprint(w, "\r\x1b[K")
		}
	}
}
