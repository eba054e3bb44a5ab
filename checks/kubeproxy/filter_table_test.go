package kubeproxy

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

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
		if a, b := fmt.Sprint(whole.Policy, whole.Rules), fmt.Sprint(cut.Policy, cut.Rules); a != b {
			t.Errorf("read whole %s\nin pieces of %d %s", a, size, b)
		}
	})
}
