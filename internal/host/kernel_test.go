package host

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestSynchronised: what chronyd leaves in the kernel with rtcsync and without, and what nobody does.
func TestSynchronised(t *testing.T) {
	for _, test := range []struct {
		what  string
		timex unix.Timex
		want  bool
	}{
		{"kept, and so called", unix.Timex{Maxerror: 17_000}, true},
		{"kept by chronyd without rtcsync", unix.Timex{Status: unix.STA_UNSYNC, Maxerror: 17_000}, true},
		{"set by nobody", unix.Timex{Status: unix.STA_UNSYNC, Maxerror: 16_000_000}, false},
	} {
		if got := synchronised(test.timex); got != test.want {
			t.Errorf("%s: %v", test.what, got)
		}
	}
}
