package packetfilter

import (
	"fmt"
	"strings"
	"testing"

	"nodegate/checks"
)

func TestMarkRegression(t *testing.T) {
	for _, c := range []struct {
		release, os string
		want        checks.Verdict
	}{
		{"6.6.56", "", checks.Pass}, {"6.6.57", "", checks.Fail}, {"6.6.58-talos", "talos", checks.Fail}, {"6.6.59", "", checks.Pass},
		{"6.11.3", "", checks.Pass}, {"6.11.4-301.fc41.x86_64", "fedora", checks.Fail}, {"6.11.5-1", "arch", checks.Fail},
		{"6.11.6", "", checks.Pass},
		{"6.8.0-55-generic", "ubuntu", checks.Pass}, {"6.8.0-56-generic", "ubuntu", checks.Fail}, {"6.8.0-57-lowlatency", "ubuntu", checks.Fail},
		{"6.8.0-58-generic", "ubuntu", checks.Pass}, {"6.8.0-1024-aws", "ubuntu", checks.Unknown}, {"6.8.0-56-generic", "debian", checks.Pass},
		{"5.15.0-127-generic", "ubuntu", checks.Fail}, {"", "", checks.Unknown},
	} {
		if got, why := markRegression(c.release, c.os); got != c.want || why == "" {
			t.Errorf("markRegression(%q, %q) = %d, %q; want %d", c.release, c.os, got, why, c.want)
		}
	}
}

func FuzzIptablesVersion(f *testing.F) {
	f.Add("iptables v1.8.9 (nf_tables)")
	f.Add("v1.")
	f.Add("v999999999.999999999.999999999")
	f.Fuzz(func(t *testing.T, said string) {
		v, err := parseIptablesVersion(said)
		if err == nil && !strings.Contains(said, fmt.Sprint(v[0])) && v[0] != 0 {
			t.Errorf("%q is %v", said, v)
		}
	})
}
