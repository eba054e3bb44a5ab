package packetfilter

import (
	"fmt"
	"strings"
	"testing"

	"nodegate/internal/verdict"
)

func TestMarkRegression(t *testing.T) {
	for _, c := range []struct {
		release, os string
		want        verdict.Verdict
	}{
		{"6.6.56", "", verdict.Pass}, {"6.6.57", "", verdict.Fail}, {"6.6.58-talos", "talos", verdict.Fail}, {"6.6.59", "", verdict.Pass},
		{"6.11.3", "", verdict.Pass}, {"6.11.4-301.fc41.x86_64", "fedora", verdict.Fail}, {"6.11.5-1", "arch", verdict.Fail},
		{"6.11.6", "", verdict.Pass},
		{"6.8.0-55-generic", "ubuntu", verdict.Pass}, {"6.8.0-56-generic", "ubuntu", verdict.Fail}, {"6.8.0-57-lowlatency", "ubuntu", verdict.Fail},
		{"6.8.0-58-generic", "ubuntu", verdict.Pass}, {"6.8.0-1024-aws", "ubuntu", verdict.Unknown}, {"6.8.0-56-generic", "debian", verdict.Pass},
		{"5.15.0-127-generic", "ubuntu", verdict.Fail}, {"", "", verdict.Unknown},
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
