package setting_test

import (
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/checks/checkstest"
	"nodegate/internal/require"
	"nodegate/policy"
	"nodegate/policy/kernels"
)

// TestOwnInNamespaces checks the parameters of which each Pod has its own value, as explain prints. On this kernel, a value written in one
// network namespace is not in the next one, nor in one made from it. Two parameters that explain leaves out exist in no namespace but the first.
func TestOwnInNamespaces(t *testing.T) {
	h := checkstest.Scratch(t)
	catalogue, err := kernels.Read()
	require.NoError(t, err)
	fresh := map[string]string{}
	for _, name := range catalogue.Parameters {
		before, err := h.ReadSysctl(name)
		n, notNumber := strconv.ParseInt(before, 10, 64)
		if !policy.Key(name).IsOwnOfPods() || err != nil || notNumber != nil {
			continue
		}
		for _, v := range []int64{n + 1, n - 1, 2 * n, 0} {
			if v != n && h.WriteSysctl(name, strconv.FormatInt(v, 10)) == nil {
				if now, err := h.ReadSysctl(name); err == nil && now != before {
					fresh[name] = before
					break
				}
			}
		}
	}
	require.NoError(t, unix.Unshare(unix.CLONE_NEWNET))
	for name, want := range fresh {
		if got, err := h.ReadSysctl(name); err != nil || got != want {
			t.Errorf("%s is %q in a new namespace (%v), want %q", name, got, err, want)
		}
	}
	if len(fresh) < 40 || fresh["net/core/somaxconn"] == "" || fresh["net/ipv4/tcp_fin_timeout"] == "" {
		t.Errorf("only %d parameters could be changed: %v", len(fresh), fresh)
	}
	t.Logf("%d parameters", len(fresh))
	for _, name := range []string{"net/ipv4/tcp_mem", "net/ipv4/tcp_max_orphans"} {
		if got, err := h.ReadSysctl(name); err == nil || policy.Key(name).IsOwnOfPods() {
			t.Errorf("%s is %s in a namespace, so it is not shared by all", name, got)
		}
	}
}
