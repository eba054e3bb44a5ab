package links

import (
	"strings"
	"testing"
)

func FuzzSNMP(f *testing.F) {
	f.Add("Ip: Forwarding\nIp: 1\nUdp: InDatagrams InCsumErrors\nUdp: 282 0\nUdpLite: InDatagrams\nUdpLite: 0\n")
	f.Add("Udp: A\nUdp: -1\n")
	f.Add("Udp:\nUdp:\n")
	f.Add("Udp: A B\nUdp: 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := parseChecksumErrors(text, "Udp"); err == nil && !strings.Contains(text, "InCsumErrors") {
			t.Errorf("%d without a counter: %q", n, text)
		}
	})
}
