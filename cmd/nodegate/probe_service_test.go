package main

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/netns"
	"nodegate/internal/require"
)

// TestProbeServiceNamesStaleEndpoints loads the recorded rules into a network namespace that contains two of the Service's three
// endpoints. The third is still in the rules but no longer in the API: the probe must report it as stale.
func TestProbeServiceNamesStaleEndpoints(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "iptables-nft-restore")
	const fixtures = "../../internal/audit/proxy/testdata/"
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	check := func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
	n, err := netns.New(ctx)
	check(err)
	defer n.Close()

	check(n.AddBridge(ctx, "pods", nil, 0))
	check(n.SetUp(ctx, "pods"))
	for _, pod := range []string{"100.96.1.2", "100.96.1.3"} {
		check(n.AddAddr(ctx, "pods", netip.MustParsePrefix(pod+"/24")))
		check(n.Do(ctx, func() error {
			l, err := net.Listen("tcp4", pod+":80")
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
			}
			return err
		}))
	}
	check(n.AddRoute(ctx, netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("100.96.1.2")))
	rules, err := os.ReadFile(fixtures + "iptables-save.txt")
	check(err)
	// The counter objects that kube-proxy creates over netlink are missing here.
	rules = regexp.MustCompile(` -m nfacct --nfacct-name +[a-z_]+`).ReplaceAll(rules, nil)
	slices, err := os.ReadFile(fixtures + "endpointslices.json")
	check(err)
	api := filepath.Join(t.TempDir(), "slices.json")
	check(os.WriteFile(api, bytes.ReplaceAll(slices, []byte(`"100.96.1.1"`), []byte(`"100.99.99.99"`)), 0o644))

	binary := filepath.Join(t.TempDir(), "nodegate")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, ".").CombinedOutput()
	require.True(t, err == nil, "building: %v\n%s", err, out)
	check(n.Do(ctx, func() error {
		restore := exec.CommandContext(ctx, "iptables-nft-restore")
		restore.Stdin = bytes.NewReader(rules)
		return restore.Run()
	}))
	var code int
	check(n.Do(ctx, func() error {
		cmd := exec.CommandContext(ctx, binary, "probe", "service", "10.104.34.55:80", "-n", "60",
			"--attempt-timeout", "300ms", "--endpoints", api)
		out, err = cmd.CombinedOutput()
		code = cmd.ProcessState.ExitCode()
		if _, failed := err.(*exec.ExitError); failed {
			return nil
		}
		return err
	}))
	if code != exitFail || !strings.Contains(string(out), "100.96.1.1:80") ||
		!strings.Contains(string(out), "stale: in the rules of prod/np, not in the API") {
		t.Errorf("exit status %d\n%s", code, out)
	}
	t.Logf("%s", out)

	// An API without any endpoint proves nothing about them.
	check(os.WriteFile(api, []byte(`{"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "items": []}`), 0o644))
	check(n.Do(ctx, func() error {
		out, _ = exec.CommandContext(ctx, binary, "probe", "service", "10.104.34.55:80", "-n", "60", "--attempt-timeout", "300ms",
			"--endpoints", api).CombinedOutput()
		return nil
	}))
	text := string(out)
	assert.True(t, strings.Contains(text, "100.96.1.1:80") && !strings.Contains(text, "   in the API"), "with an empty API:\n%s", out)
}
