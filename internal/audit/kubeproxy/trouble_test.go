package kubeproxy_test

import (
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/audit/kubeproxy"
	"nodegate/internal/host/hosttest"
)

// TestNoJournal checks that the journal of kube-proxy.service is left out only if kube-proxy certainly does not log there.
func TestNoJournal(t *testing.T) {
	for what, c := range map[string]struct {
		process, cgroup string
		want            bool
	}{
		"its unit":       {"kube-proxy", "0::/system.slice/kube-proxy.service\n", false},
		"k3s":            {"k3s", "0::/system.slice/k3s.service\n", true},
		"a Pod":          {"kube-proxy", "0::/kubepods.slice/kubepods-besteffort.slice/cri-containerd-1.scope\n", true},
		"an unread file": {"kube-proxy", "", false},
		"no kube-proxy":  {"bash", "0::/user.slice\n", false},
	} {
		m := &hosttest.Machine{Files: map[string]string{"/proc/7/stat": "7 (a) S 1 7", "/proc/7/cmdline": c.process + "\x00",
			"/proc/self/ns/net": "-> net:[1]", "/proc/7/ns/net": "-> net:[1]"}}
		if c.cgroup != "" {
			m.Files["/proc/7/cgroup"] = c.cgroup
		}
		p := kubeproxy.Presence{Host: m.Host()}
		assert.Equal(t, p.NoJournal(), c.want, "%s", what)
	}
}
