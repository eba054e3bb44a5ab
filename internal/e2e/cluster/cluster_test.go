//go:build cluster

package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

const repository = "../../.."

// startPlane starts a control plane of one version. If the test fails, it logs the end of the control plane's logs.
func startPlane(t testing.TB, version string, programs []string) *ControlPlane {
	t.Helper()
	hosttest.NeedRoot(t)
	for _, program := range []string{"etcd", "ip", "nft", "iptables-nft", "iptables-legacy", "conntrack", "curl"} {
		hosttest.NeedProgram(t, program)
	}
	bin, err := Build(t.Context(), CacheDir(repositoryRoot(t)), version, programs)
	require.NoError(t, err)
	began := time.Now()
	c, err := Start(t.Context(), bin, t.TempDir())
	require.NoError(t, err)
	t.Logf("control plane %s ready after %.1f s", version, time.Since(began).Seconds())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the control plane's logs:\n%s", c.Logs())
		}
		c.Close()
	})
	return c
}

func repositoryRoot(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs(repository)
	require.NoError(t, err)
	return dir
}

// buildNodegate builds the binary, or returns the one that NODEGATE names.
func buildNodegate(t testing.TB) string {
	t.Helper()
	if binary := os.Getenv("NODEGATE"); binary != "" {
		return binary
	}
	binary := filepath.Join(t.TempDir(), "nodegate")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/nodegate")
	cmd.Dir, cmd.Env = repositoryRoot(t), append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.True(t, err == nil, "building nodegate: %v\n%s", err, out)
	return binary
}

// churnTime is the duration of a test with churn: the given one, or ten minutes if LONG is set.
func churnTime(short time.Duration) time.Duration {
	if os.Getenv("LONG") != "" {
		return 10 * time.Minute
	}
	return short
}

// repetitions returns 1, or n if LONG is set.
func repetitions(n int) int {
	if os.Getenv("LONG") != "" {
		return n
	}
	return 1
}
