package links

import (
	"testing"

	"nodegate/internal/verdict"
)

func TestNATChecksumFix(t *testing.T) {
	for _, c := range []struct {
		release, os string
		want        verdict.Verdict
	}{
		{"6.18.44", "", verdict.Pass},
		{"5.7.0", "", verdict.Pass},
		{"5.7", "", verdict.Pass},
		{"5.10.0-8-amd64", "debian", verdict.Pass},
		{"6.1.112-122.189.amzn2023.x86_64", "amzn", verdict.Pass},
		{"5.4.41", "", verdict.Pass},
		{"5.4.40", "", verdict.Fail},
		{"5.4.92-flatcar", "flatcar", verdict.Pass},
		{"4.19.106-coreos", "coreos", verdict.Fail},
		{"4.19.123", "", verdict.Pass},
		{"4.14.180", "", verdict.Fail},
		{"4.14.181", "", verdict.Pass},
		{"5.6.14", "", verdict.Unknown},
		{"5.3.18-24-default", "sles", verdict.Unknown},
		{"4.9.220", "", verdict.Unknown},
		{"4.15.0-106-generic", "ubuntu", verdict.Fail},
		{"4.15.0-107-generic", "ubuntu", verdict.Pass},
		{"4.15.0-1073-aws", "ubuntu", verdict.Unknown},
		{"5.4.0-31-generic", "ubuntu", verdict.Fail},
		{"5.4.0-32-lowlatency", "ubuntu", verdict.Pass},
		{"5.4.0-1015-aws", "ubuntu", verdict.Unknown},
		{"5.3.0-51-generic", "ubuntu", verdict.Unknown},
		{"5.4.0", "", verdict.Unknown},
		{"4.19.0-9-amd64", "debian", verdict.Unknown},
		{"4.14.177-139.253.amzn2.x86_64", "amzn", verdict.Unknown},
		{"3.10.0-1127.el7.x86_64", "centos", verdict.Unknown},
		{"4.18.0-193.el8.x86_64", "rhel", verdict.Pass},
		{"5.14.0-427.el9.x86_64", "rocky", verdict.Pass},
		{"5.4.17-2102.200.13.el8uek.x86_64", "ol", verdict.Unknown},
		{"", "", verdict.Unknown},
		{"linux", "", verdict.Unknown},
		{"5.99999999999999999999.1", "", verdict.Unknown},
	} {
		if got, why := natChecksumFix(c.release, c.os); got != c.want || why == "" {
			t.Errorf("natChecksumFix(%q, %q) = %d, %q; want %d", c.release, c.os, got, why, c.want)
		}
	}
}
