//go:build torture

package torture

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/e2e/torture/inject"
	"nodegate/internal/require"
)

var (
	long  = flag.Bool("long", os.Getenv("LONG") != "", "try every point, not a sample")
	times = flag.Int("times", 1, "multiply the size of the samples")
	seed  = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the random samples")
)

// runLimit is the time that systemd gives a gate beyond its budget (units, dropInSlack). systemd ends a gate that takes longer.
const runLimit = 30 * time.Second

// survey counts the attacks in one area, and those that nodegate did not survive.
type survey struct {
	mu            sync.Mutex
	tried, failed int
}

// runPoint runs one attack and reports its error.
func (s *survey) runPoint(t *testing.T, what string, attack func() error) {
	err := attack()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried++
	if err != nil {
		s.failed++
		t.Errorf("%s: %v", what, err)
	}
}

// printCounts prints the counts. It fails if nothing was tried.
func (s *survey) printCounts(t *testing.T, area string) {
	t.Logf("TORTURE %-44s tried %5d, survived %5d", area, s.tried, s.tried-s.failed)
	assert.True(t, s.tried != 0, "nothing was tried")
}

// samplePoints returns n random numbers below total, more with -times, or all of them with LONG=1.
func samplePoints(t *testing.T, total, n int) []int {
	all := rand.New(rand.NewPCG(*seed, uint64(total))).Perm(total)
	if !*long && n**times < total {
		all = all[:n**times]
	}
	t.Logf("%d of %d points (seed %d; `go test -args -seed %d` repeats them)", len(all), total, *seed, *seed)
	return all
}

// forEachPoint calls try for every point, with several workers at a time.
func forEachPoint(points []int, workers int, try func(point int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range workers {
		wg.Go(func() {
			runtime.LockOSThread() // Pdeathsig refers to the thread that starts a program, and other tests end threads
			defer runtime.UnlockOSThread()
			for p := range next {
				try(p)
			}
		})
	}
	for _, p := range points {
		next <- p
	}
	close(next)
	wg.Wait()
}

// runProgram runs a program to its end, and returns its output and exit status.
func runProgram(dir string, args []string, decide func(inject.Call) inject.Action) (out string, status int, err error) {
	r := inject.Run{Args: args, Dir: dir, Decide: decide}
	out, status, err = startRun(&r)
	return out, status, err
}

// startRun sets the fields that all runs share, and runs the program.
func startRun(r *inject.Run) (out string, status int, err error) {
	r.Output, err = os.CreateTemp(r.Dir, "output")
	if err != nil {
		return "", 0, err
	}
	defer r.Output.Close()
	defer os.RemoveAll(r.Output.Name())
	r.Env = append(r.Env, "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	r.Limit = runLimit
	status, err = r.Start()
	text, readErr := os.ReadFile(r.Output.Name())
	return string(text), status, errors.Join(err, readErr)
}

// nodegate returns the path of the binary under test: NODEGATE, or bin/nodegate.
func nodegate(t *testing.T) string {
	name := os.Getenv("NODEGATE")
	if name == "" {
		name = "../../../bin/nodegate"
	}
	abs, err := filepath.Abs(name)
	if err == nil {
		_, err = os.Stat(abs)
	}
	require.NoError(t, err)
	return abs
}

// scratchDir returns an empty directory in memory.
func scratchDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "nodegate-torture")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
}

func lastLines(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return fmt.Sprintf("%q", lines[max(0, len(lines)-3):])
}
