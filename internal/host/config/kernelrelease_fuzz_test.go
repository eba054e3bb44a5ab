package config

import (
	"strings"
	"testing"
)

func FuzzKernelRelease(f *testing.F) {
	for _, s := range []string{"6.18.44-fc-v669", "5.4.0-32-generic", "4.18.0-193.el8.x86_64", "5.4.17-2102.el8uek", "6", "..",
		"5.4.0--generic", "5.-1.0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, release string) {
		if k, err := ParseKernelRelease(release); err == nil && !strings.HasSuffix(release, k.Rest) {
			t.Errorf("%q does not end in %q", release, k.Rest)
		}
	})
}
