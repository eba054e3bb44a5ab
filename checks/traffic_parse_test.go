package checks

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestNATChecksumFix(t *testing.T) {
	for _, c := range []struct {
		release, os string
		want        tristate
	}{
		{"6.18.44", "", yes},
		{"5.7.0", "", yes},
		{"5.7", "", yes},
		{"5.10.0-8-amd64", "debian", yes},
		{"6.1.112-122.189.amzn2023.x86_64", "amzn", yes},
		{"5.4.41", "", yes},
		{"5.4.40", "", no},
		{"5.4.92-flatcar", "flatcar", yes},
		{"4.19.106-coreos", "coreos", no},
		{"4.19.123", "", yes},
		{"4.14.180", "", no},
		{"4.14.181", "", yes},
		{"5.6.14", "", unknown},
		{"5.3.18-24-default", "sles", unknown},
		{"4.9.220", "", unknown},
		{"4.15.0-106-generic", "ubuntu", no},
		{"4.15.0-107-generic", "ubuntu", yes},
		{"4.15.0-1073-aws", "ubuntu", unknown},
		{"5.4.0-31-generic", "ubuntu", no},
		{"5.4.0-32-lowlatency", "ubuntu", yes},
		{"5.4.0-1015-aws", "ubuntu", unknown},
		{"5.3.0-51-generic", "ubuntu", unknown},
		{"5.4.0", "", unknown},
		{"4.19.0-9-amd64", "debian", unknown},
		{"4.14.177-139.253.amzn2.x86_64", "amzn", unknown},
		{"3.10.0-1127.el7.x86_64", "centos", unknown},
		{"4.18.0-193.el8.x86_64", "rhel", yes},
		{"5.14.0-427.el9.x86_64", "rocky", yes},
		{"5.4.17-2102.200.13.el8uek.x86_64", "ol", unknown},
		{"", "", unknown},
		{"linux", "", unknown},
		{"5.99999999999999999999.1", "", unknown},
	} {
		if got, why := natChecksumFix(c.release, c.os); got != c.want || why == "" {
			t.Errorf("natChecksumFix(%q, %q) = %d, %q; want %d", c.release, c.os, got, why, c.want)
		}
	}
}

func TestMarkRegression(t *testing.T) {
	for _, c := range []struct {
		release, os string
		want        tristate
	}{
		{"6.6.56", "", no}, {"6.6.57", "", yes}, {"6.6.58-talos", "talos", yes}, {"6.6.59", "", no},
		{"6.11.3", "", no}, {"6.11.4-301.fc41.x86_64", "fedora", yes}, {"6.11.5-1", "arch", yes}, {"6.11.6", "", no},
		{"6.8.0-55-generic", "ubuntu", no}, {"6.8.0-56-generic", "ubuntu", yes}, {"6.8.0-57-lowlatency", "ubuntu", yes},
		{"6.8.0-58-generic", "ubuntu", no}, {"6.8.0-1024-aws", "ubuntu", unknown}, {"6.8.0-56-generic", "debian", no},
		{"5.15.0-127-generic", "ubuntu", yes}, {"", "", unknown},
	} {
		if got, why := markRegression(c.release, c.os); got != c.want || why == "" {
			t.Errorf("markRegression(%q, %q) = %d, %q; want %d", c.release, c.os, got, why, c.want)
		}
	}
}

func FuzzKernelRelease(f *testing.F) {
	for _, s := range []string{"6.18.44-fc-v669", "5.4.0-32-generic", "4.18.0-193.el8.x86_64", "5.4.17-2102.el8uek", "6", "..", "5.4.0--generic", "5.-1.0"} {
		f.Add(s, "ubuntu")
	}
	f.Fuzz(func(t *testing.T, release, os string) {
		if k, err := parseKernelRelease(release); err == nil && !strings.HasSuffix(release, k.rest) {
			t.Errorf("%q does not end in %q", release, k.rest)
		}
		natChecksumFix(release, os)
		markRegression(release, os)
	})
}

func FuzzConntrackStat(f *testing.F) {
	f.Add("entries  found insert_failed drop early_drop\n00000010  00000000 0000000a 00000000 00000001\n0000000f  ffffffff 0000000a 00000000 00000001\n")
	f.Add("entries\n")
	f.Add("a b\n1\n")
	f.Add("a a\n1 2\n")
	f.Fuzz(func(t *testing.T, text string) {
		sums, err := parseConntrackStat(text)
		if err != nil {
			return
		}
		for name := range sums {
			if !slices.Contains(strings.Fields(text), name) {
				t.Errorf("%q is no name of %q", name, text)
			}
		}
		if len(sums) == 0 {
			t.Errorf("no counters and no error: %q", text)
		}
	})
}

func FuzzSNMP(f *testing.F) {
	f.Add("Ip: Forwarding\nIp: 1\nUdp: InDatagrams InCsumErrors\nUdp: 282 0\nUdpLite: InDatagrams\nUdpLite: 0\n")
	f.Add("Udp: A\nUdp: -1\n")
	f.Add("Udp:\nUdp:\n")
	f.Add("Udp: A B\nUdp: 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		if counters, err := parseSNMP(text, "Udp"); err == nil && counters == nil {
			t.Errorf("no counters and no error: %q", text)
		}
	})
}

// FuzzFilterTable: however the text is cut into writes, it reads the same.
func FuzzFilterTable(f *testing.F) {
	f.Add("*filter\n:FORWARD DROP [0:0]\n:DOCKER - [0:0]\n[3:4] -A FORWARD -m comment --comment \"a \\\"b\\\" -j DROP\" -j DOCKER\nCOMMIT\n*nat\n-A X -j Y\nCOMMIT\n", 7)
	f.Add("*filter\n-A KUBE-FIREWALL -j DROP", 1)
	f.Add("*filter\n:X - [0:0]\n-A X "+strings.Repeat("-j Y ", maxFilterLine/5)+"\n-A X -j Z\nCOMMIT\n", 4096)
	f.Add("[\n*filter \n:\n-A \n-A X\nCOMMIT", 3)
	f.Fuzz(func(t *testing.T, text string, size int) {
		whole, cut := newFilterTable(""), newFilterTable("")
		_, _ = io.Copy(whole, strings.NewReader(text))
		rest := []byte(text)
		for size = max(1, size); len(rest) > 0; {
			n := min(size, len(rest))
			if wrote, err := cut.Write(rest[:n]); wrote != n || err != nil {
				t.Fatalf("wrote %d of %d: %v", wrote, n, err)
			}
			rest = rest[n:]
		}
		if a, b := fmt.Sprint(whole.policy, whole.rules), fmt.Sprint(cut.policy, cut.rules); a != b {
			t.Errorf("read whole %s\nin pieces of %d %s", a, size, b)
		}
		whole.accepting("FORWARD", map[string]bool{})
		for _, rules := range whole.rules {
			invalidDrop(rules)
		}
	})
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

func FuzzProxyConntrack(f *testing.F) {
	f.Add("kind: KubeProxyConfiguration\nconntrack:\n  maxPerCore: 0\n  min: null\n")
	f.Add("  - --conntrack-max-per-core=65536\n  - --conntrack-min \"1\"")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := parseProxyConntrack(text); err == nil && c.writes(4, true) > 1048576 {
			t.Errorf("%q: over the cap", text)
		}
	})
}
