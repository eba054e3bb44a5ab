//go:build vm

package vm

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

const (
	repository = "../../.."
	wholeTime  = 40 * time.Minute // one scenario
)

// TestScenarios runs every directory in scenarios as a subtest. The -parallel flag of go test limits the machines that run at a time.
func TestScenarios(t *testing.T) {
	t.Parallel()
	runAll(t, newRunner(t), "scenarios")
}

// TestHardened runs every directory in hardened as a subtest, on an image with SELinux, AppArmor and their policies.
func TestHardened(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	var err error
	r.Base, err = DefaultCache(mustAbs(t, repository)).Hardened(t.Context())
	require.NoError(t, err)
	runAll(t, r, "hardened")
}

func runAll(t *testing.T, r Runner, dir string) {
	scenarios, err := Load(dir)
	require.NoError(t, err)
	// Start with the longest, so that no core is idle at the end.
	slices.SortStableFunc(scenarios, func(a, b Scenario) int { return len(b.Boots) - len(a.Boots) })
	for _, s := range scenarios {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), wholeTime)
			defer cancel()
			r := r
			r.Log = t.Logf
			t.Log(s.Description)
			assert.NoError(t, r.Run(ctx, s))
		})
	}
}

// TestOldestSystemd runs the scenarios that depend most on systemd with the oldest version that nodegate is tested with.
func TestOldestSystemd(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	var err error
	r.Base, err = DefaultCache(mustAbs(t, repository)).Oldest(t.Context())
	require.NoError(t, err)
	for _, name := range []string{"installed-into-the-image", "flipped-and-held", "kops-fetched"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := loadScenario(filepath.Join("scenarios", name))
			require.NoError(t, err)
			s.Boots = s.Boots[:min(2, len(s.Boots))]
			r := r
			r.Log = t.Logf
			assert.NoError(t, r.Run(t.Context(), s))
		})
	}
}

// TestARM64 runs the main scenario on an arm64 node, with an arm64 binary and a second boot.
func TestARM64(t *testing.T) {
	r := newRunner(t)
	arch, root, began := ARM64(), mustAbs(t, repository), time.Now()
	var err error
	r.Base, err = DefaultCache(root).Foreign(t.Context(), arch)
	require.NoError(t, err)
	t.Logf("base image of %s ready after %.0f s", arch.Name, time.Since(began).Seconds())
	r.Nodegate = filepath.Join(r.Scratch, "nodegate-"+arch.Name)
	compile(t, root, r.Nodegate, "GOARCH="+arch.Name)
	s, err := loadScenario(filepath.Join("scenarios", "installed-into-the-image"))
	require.NoError(t, err)
	s.Boots = s.Boots[:2]
	s.Boots[0].Script += "[ \"$(uname -m)\" = aarch64 ] || die \"this is $(uname -m)\"\n"
	assert.NoError(t, r.Run(t.Context(), s))
}

func mustAbs(t testing.TB, name string) string {
	t.Helper()
	full, err := filepath.Abs(name)
	require.NoError(t, err)
	return full
}

// newRunner builds the binary and the base image. If this host cannot run machines it skips the test, or fails if CI is set.
func newRunner(t testing.TB) Runner {
	t.Helper()
	missing := Missing()
	hosttest.Need(t, len(missing) == 0, "a host that runs virtual machines:\n"+strings.Join(missing, "\n"))
	root := mustAbs(t, repository)
	cache := DefaultCache(root)
	scratch, err := cache.Scratch()
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, scratch.Close())
	})
	began := time.Now()
	base, err := cache.Base(t.Context())
	require.NoError(t, err)
	t.Logf("base image ready after %.0f s", time.Since(began).Seconds())
	return Runner{Base: base, Nodegate: buildBinary(t, root, scratch.Dir), Scratch: scratch.Dir, Log: t.Logf}
}

// buildBinary builds the static binary, or returns the one that NODEGATE names.
func buildBinary(t testing.TB, root, dir string) string {
	t.Helper()
	if binary := os.Getenv("NODEGATE"); binary != "" {
		return binary
	}
	binary := filepath.Join(dir, "nodegate")
	compile(t, root, binary)
	return binary
}

func compile(t testing.TB, root, binary string, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/nodegate")
	cmd.Dir = root
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	out, err := cmd.CombinedOutput()
	require.True(t, err == nil, "building nodegate: %v\n%s", err, out)
}
