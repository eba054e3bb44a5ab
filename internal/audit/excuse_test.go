package audit

import (
	"context"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
)

// TestExcuse: a kube-proxy that does not answer is not to blame if a rule may drop the audit's own query, or the answer.
func TestExcuse(t *testing.T) {
	const hung, absent, silent = "kubeproxy.process.hung", "kubeproxy.process.absent", "kubeproxy.process.silent"
	const loss = `{"losses": [{"kind": "CAUSE", "family": "ip", "table": "filter", "chain": "INPUT", "rule": "-A INPUT -i lo -j DROP", "flows": [
		{"name": "the node to kube-proxy", "kind": "KIND", "node": true, "to": "127.0.0.1:10256", "sent": 1, "lost": LOST}]}]}`
	for _, c := range []struct{ process, cause, kind, lost, want, by string }{
		{"kube-proxy", "rule", "", "", hung, "kill -ABRT"},
		{"kube-proxy", "rule", ToPage, "1", silent, "-I INPUT"},
		{"kube-proxy", "rule", ToPage, "0", hung, ""},
		{"kube-proxy", "rule", ToOutside, "1", hung, ""},
		{"bash", "rule", "", "", absent, ""},
		{"kube-proxy", "", ToPage, "1", silent, "ip rule"},
		{"bash", "", ToPage, "1", absent, ""},
		{"bash", "rule", ToPage, "1", silent, "-I INPUT"},
	} {
		m := &hosttest.Machine{Files: map[string]string{"/proc/7/stat": "7 (a) S 1 7",
			"/proc/7/cmdline": c.process + "\x00", "/proc/self/ns/net": "-> net:[1]", "/proc/7/ns/net": "-> net:[1]",
			"/proc/self/ns/pid": "-> pid:[4026531836]"}}
		if c.kind != "" {
			m.Packets = strings.NewReplacer("CAUSE", c.cause, "KIND", c.kind, "LOST", c.lost).Replace(loss)
		}
		n := NewMachine(m.Host())
		n.Presence.Get = func(context.Context, string) ([]byte, int, error) { return nil, 0, context.DeadlineExceeded }
		found := n.Proxy(t.Context())
		if len(found) != 1 || found[0].Name != c.want || !strings.Contains(found[0].Remedy, c.by) {
			t.Errorf("%s with %s: %+v, want %s with %q", c.process, c.kind, found, c.want, c.by)
		} else if c.want == silent {
			assert.Equal(t, found[0].Verdict, verdict.Unknown, "%s", c.kind)
		}
	}
}
