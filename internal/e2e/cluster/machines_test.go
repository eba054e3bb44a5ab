//go:build cluster

package cluster

import (
	"cmp"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/e2e/vm"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

const wholeTime = 45 * time.Minute // one scenario: ipvs takes 25 minutes beside another one

// TestScenarios runs every directory in scenarios as a subtest, once per suite, each with a new control plane and new machines. The
// -parallel flag of go test limits how many run at a time; the longest start first. KUBERNETES selects a version other than the newest.
func TestScenarios(t *testing.T) {
	scenarios, err := Load("scenarios")
	require.NoError(t, err)
	atATime, err := strconv.Atoi(flag.Lookup("test.parallel").Value.String())
	require.NoError(t, err)
	minutes := map[string]int{ // with two processors, two at a time; scenarios without an entry start last
		"ipvs": 14, "lifecycle": 12, "stale": 9, "overlay": 7, "power-on": 6, "causes": 5, "same-node": 4, "distributions": 4,
	}
	slices.SortStableFunc(scenarios, func(a, b Scenario) int { return cmp.Compare(minutes[b.Name], minutes[a.Name]) })
	jobs := make(chan func())
	var workers sync.WaitGroup
	for range atATime {
		workers.Go(func() {
			for job := range jobs {
				job()
			}
		})
	}
	var ran atomic.Int64
	failures := make(chan string, 100)
	run := func(name string, s Scenario, suite string) {
		jobs <- func() {
			t.Run(name, func(t *testing.T) {
				ran.Add(1)
				t.Log(s.Description)
				if err := runScenario(t, s, suite); err != nil {
					t.Error(err)
					cause, _, _ := strings.Cut(err.Error(), "=== ")
					failures <- name + ": " + cause
				}
			})
		}
	}
	for _, s := range scenarios {
		if len(s.Suites) == 0 {
			run(s.Name, s, vm.Suite)
		}
		for _, suite := range s.Suites {
			run(s.Name+"/"+suite, s, suite)
		}
	}
	close(jobs)
	workers.Wait()
	close(failures)
	for failure := range failures { // again at the end: the evidence of one failure has hundreds of lines
		t.Error(failure)
	}
	assert.True(t, ran.Load() != 0, "unknown scenario; scenarios are the directories in scenarios/")
}

func runScenario(t *testing.T, s Scenario, suite string) error {
	t.Helper()
	r := newRunner(t, cmp.Or(os.Getenv("KUBERNETES"), Newest), s, suite)
	ctx, cancel := context.WithTimeout(t.Context(), wholeTime)
	defer cancel()
	return r.Run(ctx, s)
}

// newRunner builds everything that a scenario needs, from the control plane to the image for Pods.
func newRunner(t *testing.T, version string, s Scenario, suite string) Runner {
	t.Helper()
	missing := vm.Missing()
	hosttest.Need(t, len(missing) == 0, "a host that runs virtual machines:\n"+strings.Join(missing, "\n"))
	cache := vm.DefaultCache(repositoryRoot(t))
	scratch, err := cache.Scratch()
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, scratch.Close())
	})
	base, err := NodeBase(t.Context(), cache, suite)
	require.NoError(t, err)
	pod := podProgram(t)
	binary, c := buildNodegate(t), startPlane(t, version, ForMachines())
	r := Runner{Nodes: Nodes{Base: base, Plane: c, Pod: pod, Scratch: scratch.Dir}, Nodegate: binary, Log: t.Logf}
	var flags []string
	if len(s.Suites) > 0 {
		r.Containerd, err = BuildContainerd(t.Context(), CacheDir(repositoryRoot(t)))
		require.NoError(t, err)
	}
	if s.Bake {
		policy, err := os.ReadFile(s.Policy)
		require.NoError(t, err)
		r.Releases = buildReleases(t)
		r.Bake = &vm.Bake{Repository: repositoryRoot(t), Nodegate: r.Releases + "/v1.0.0/nodegate-linux-amd64", Policy: string(policy)}
	}
	if s.Flannel {
		r.Flannel, err = BuildFlannel(t.Context(), CacheDir(repositoryRoot(t)))
		require.NoError(t, err)
		require.NoError(t, c.LetFlannel(t.Context()))
		flags = NodeCIDRs()
	}
	require.NoError(t, c.LetNodesJoin(t.Context(), flags...))
	return r
}

// podProgram builds the program for Pods.
func podProgram(t *testing.T) string {
	t.Helper()
	pod := filepath.Join(t.TempDir(), "pod")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", pod, "./internal/e2e/cluster/pod")
	cmd.Dir, cmd.Env = repositoryRoot(t), append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.True(t, err == nil, "building the Pods' program: %v\n%s", err, out)
	return pod
}

// buildReleases builds two releases as `make dist` does, as far as this machine needs them.
func buildReleases(t *testing.T) string {
	t.Helper()
	for _, program := range []string{cmp.Or(os.Getenv("PACKER"), "packer"), "qemu-img", "ssh-keygen"} {
		hosttest.NeedProgram(t, program)
	}
	dir := t.TempDir()
	for _, version := range []string{"v1.0.0", "v1.0.1"} {
		cmd := exec.CommandContext(t.Context(), "go", "run", "./images/release", "deb", filepath.Join(dir, version))
		cmd.Dir, cmd.Env = repositoryRoot(t), append(os.Environ(), "VERSION="+version, "SOURCE_DATE_EPOCH=1700000000")
		out, err := cmd.CombinedOutput()
		require.True(t, err == nil, "making %s: %v\n%s", version, err, out)
	}
	return dir
}
