package links

import (
	"testing"

	"nodegate/checks"
)

func TestNATChecksumFix(t *testing.T) {
	for _, c := range []struct {
		release, os string
		want        checks.Verdict
	}{
		{"6.18.44", "", checks.Pass},
		{"5.7.0", "", checks.Pass},
		{"5.7", "", checks.Pass},
		{"5.10.0-8-amd64", "debian", checks.Pass},
		{"6.1.112-122.189.amzn2023.x86_64", "amzn", checks.Pass},
		{"5.4.41", "", checks.Pass},
		{"5.4.40", "", checks.Fail},
		{"5.4.92-flatcar", "flatcar", checks.Pass},
		{"4.19.106-coreos", "coreos", checks.Fail},
		{"4.19.123", "", checks.Pass},
		{"4.14.180", "", checks.Fail},
		{"4.14.181", "", checks.Pass},
		{"5.6.14", "", checks.Unknown},
		{"5.3.18-24-default", "sles", checks.Unknown},
		{"4.9.220", "", checks.Unknown},
		{"4.15.0-106-generic", "ubuntu", checks.Fail},
		{"4.15.0-107-generic", "ubuntu", checks.Pass},
		{"4.15.0-1073-aws", "ubuntu", checks.Unknown},
		{"5.4.0-31-generic", "ubuntu", checks.Fail},
		{"5.4.0-32-lowlatency", "ubuntu", checks.Pass},
		{"5.4.0-1015-aws", "ubuntu", checks.Unknown},
		{"5.3.0-51-generic", "ubuntu", checks.Unknown},
		{"5.4.0", "", checks.Unknown},
		{"4.19.0-9-amd64", "debian", checks.Unknown},
		{"4.14.177-139.253.amzn2.x86_64", "amzn", checks.Unknown},
		{"3.10.0-1127.el7.x86_64", "centos", checks.Unknown},
		{"4.18.0-193.el8.x86_64", "rhel", checks.Pass},
		{"5.14.0-427.el9.x86_64", "rocky", checks.Pass},
		{"5.4.17-2102.200.13.el8uek.x86_64", "ol", checks.Unknown},
		{"", "", checks.Unknown},
		{"linux", "", checks.Unknown},
		{"5.99999999999999999999.1", "", checks.Unknown},
	} {
		if got, why := natChecksumFix(c.release, c.os); got != c.want || why == "" {
			t.Errorf("natChecksumFix(%q, %q) = %d, %q; want %d", c.release, c.os, got, why, c.want)
		}
	}
}
