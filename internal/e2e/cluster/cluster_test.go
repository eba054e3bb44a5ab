//go:build cluster

package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"nodegate/internal/host/hosttest"
)

const repository = "../../.."

// plane starts a control plane of a version. Where the test fails, it says what the control plane has to say.
func plane(t testing.TB, version string, programs []string) *ControlPlane {
	t.Helper()
	hosttest.NeedRoot(t)
	for _, program := range []string{"etcd", "ip", "nft", "iptables-nft", "iptables-legacy", "conntrack", "curl"} {
		hosttest.NeedProgram(t, program)
	}
	bin, err := Build(t.Context(), CacheDir(root(t)), version, programs)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c, err := Start(t.Context(), bin, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("control plane %s ready after %.1f s", version, time.Since(began).Seconds())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the control plane's last words:\n%s", c.Logs())
		}
		c.Close()
	})
	return c
}

func root(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// nodegate builds the binary. NODEGATE names one to take instead.
func nodegate(t testing.TB) string {
	t.Helper()
	if binary := os.Getenv("NODEGATE"); binary != "" {
		return binary
	}
	binary := filepath.Join(t.TempDir(), "nodegate")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/nodegate")
	cmd.Dir, cmd.Env = root(t), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building nodegate: %v\n%s", err, out)
	}
	return binary
}

// length is how long a test of motion lasts: the shorter time, or ten minutes where LONG is set.
func length(short time.Duration) time.Duration {
	if os.Getenv("LONG") != "" {
		return 10 * time.Minute
	}
	return short
}

// rounds is how often something is tried: once, or n times where LONG is set.
func rounds(n int) int {
	if os.Getenv("LONG") != "" {
		return n
	}
	return 1
}
