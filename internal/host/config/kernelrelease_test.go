package config_test

import (
	"strings"
	"testing"

	"nodegate/internal/host/config"
)

func TestKernelRelease(t *testing.T) {
	for text, want := range map[string]config.KernelRelease{
		"6.1.0-28-amd64":        {Numbers: "6.1.0", Version: [3]int{6, 1, 0}, ABI: 28, Rest: "-28-amd64"},
		"5.4.0-1015-aws":        {Numbers: "5.4.0", Version: [3]int{5, 4, 0}, ABI: 1015, Rest: "-1015-aws"},
		"6.12.43+deb13-amd64":   {Numbers: "6.12.43", Version: [3]int{6, 12, 43}, Rest: "+deb13-amd64"},
		"4.18.0-553.el8.x86_64": {Numbers: "4.18.0", Version: [3]int{4, 18, 0}, Rest: "-553.el8.x86_64"},
		"6.1":                   {Numbers: "6.1", Version: [3]int{6, 1, 0}},
	} {
		want.Text = text
		if got, err := config.ParseKernelRelease(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "linux", "6", "6..1", "99999999999999999999.1"} {
		if got, err := config.ParseKernelRelease(text); err == nil || !strings.Contains(err.Error(), "is not a kernel release") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}
