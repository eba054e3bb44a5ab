package host

import (
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
)

// TestSynchronised uses the states that chronyd leaves in the kernel with and without rtcsync, and the state without any time daemon.
func TestSynchronised(t *testing.T) {
	for _, test := range []struct {
		what  string
		timex unix.Timex
		want  bool
	}{
		{"synchronised, flag set", unix.Timex{Maxerror: 17_000}, true},
		{"synchronised by chronyd without rtcsync", unix.Timex{Status: unix.STA_UNSYNC, Maxerror: 17_000}, true},
		{"never synchronised", unix.Timex{Status: unix.STA_UNSYNC, Maxerror: 16_000_000}, false},
	} {
		assert.Equal(t, synchronised(test.timex), test.want, "%s", test.what)
	}
}
