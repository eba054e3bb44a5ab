//go:build torture

package torture

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"nodegate/internal/e2e/torture/inject"
)

var (
	long = flag.Bool("long", os.Getenv("LONG") != "", "take every point, not a sample")
	seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the samples")
)

// limit is what systemd gives a gate beyond its budget (units, dropInSlack): what takes longer is ended by systemd.
const limit = 30 * time.Second

// survey counts what was tried in one area, and what did not survive.
type survey struct {
	mu            sync.Mutex
	tried, failed int
}

// point runs one attack. It says what is wrong, or returns "".
func (s *survey) point(t *testing.T, what string, attack func() error) {
	err := attack()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried++
	if err != nil {
		s.failed++
		t.Errorf("%s: %v", what, err)
	}
}

// close prints the counts. Nothing tried is no success.
func (s *survey) close(t *testing.T, area string) {
	t.Logf("TORTURE %-44s tried %5d, survived %5d", area, s.tried, s.tried-s.failed)
	if s.tried == 0 {
		t.Error("nothing was tried")
	}
}

// sample returns n of all numbers below total, or all of them with LONG=1.
func sample(t *testing.T, total, n int) []int {
	all := rand.New(rand.NewPCG(*seed, uint64(total))).Perm(total)
	if !*long && n < total {
		all = all[:n]
	}
	t.Logf("%d of %d points (seed %d; go test -args -seed %d tries the same)", len(all), total, *seed, *seed)
	return all
}

// each calls try for every point, some at a time.
func each(points []int, workers int, try func(point int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range workers {
		wg.Go(func() {
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

// run runs a program to its end, and returns what it said.
func run(dir string, args []string, decide func(inject.Call) inject.Action) (out string, status int, err error) {
	r := inject.Run{Args: args, Dir: dir, Decide: decide}
	out, status, err = start(&r)
	return out, status, err
}

// start fills in what all runs have in common.
func start(r *inject.Run) (out string, status int, err error) {
	r.Output, err = os.CreateTemp(r.Dir, "output")
	if err != nil {
		return "", 0, err
	}
	defer r.Output.Close()
	defer os.RemoveAll(r.Output.Name())
	r.Env = append(r.Env, "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	r.Limit = limit
	status, err = r.Start()
	text, readErr := os.ReadFile(r.Output.Name())
	return string(text), status, errors.Join(err, readErr)
}

// nodegate returns the binary under test: NODEGATE, else bin/nodegate.
func nodegate(t *testing.T) string {
	name := os.Getenv("NODEGATE")
	if name == "" {
		name = "../../../bin/nodegate"
	}
	abs, err := filepath.Abs(name)
	if err == nil {
		_, err = os.Stat(abs)
	}
	if err != nil {
		t.Fatalf("%v; run: make build", err)
	}
	return abs
}

// scratch returns an empty directory in memory.
func scratch(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "nodegate-torture")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func last(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return fmt.Sprintf("%q", lines[max(0, len(lines)-3):])
}
