//go:build torture

package torture

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestReaders runs gate, apply and watch with a standard output and error that are closed, full, stopped, or have no reader any
// more. None may end because of that, or wait for it; the status stays that of the node.
func TestReaders(t *testing.T) {
	t.Parallel()
	r := newRoom(t, heldPolicy)
	outlets := map[string]func() (*os.File, func(), error){
		"gone": func() (*os.File, func(), error) {
			read, write, err := os.Pipe()
			if err != nil {
				return nil, nil, err
			}
			return write, func() { _ = write.Close() }, read.Close()
		},
		"full": func() (*os.File, func(), error) {
			f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			return f, func() { _ = f.Close() }, err
		},
		"read-only": func() (*os.File, func(), error) {
			f, err := os.Open(os.DevNull)
			return f, func() { _ = f.Close() }, err
		},
		"stopped": func() (*os.File, func(), error) {
			var p [2]int
			if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
				return nil, nil, err
			}
			for err := error(nil); err == nil; {
				_, err = unix.Write(p[1], make([]byte, 4096))
			}
			err := unix.SetNonblock(p[1], false) // a program that waits would wait for ever
			write := os.NewFile(uintptr(p[1]), "stopped")
			return write, func() { _ = write.Close(); _ = unix.Close(p[0]) }, err
		},
	}
	type point struct {
		what, which string
		out, err    bool
		verb        []string
	}
	var points []point
	var all []int
	for what := range outlets {
		for _, verb := range [][]string{{"gate"}, {"apply", "--timeout", "5s"}, {"watch"}} {
			points = append(points, point{what, "error", false, true, verb})
			if what == "stopped" && verb[0] == "apply" {
				continue // its report is its output: it waits for the reader, as every program does, until systemd's timeout
			}
			points = append(points, point{what, "output", true, false, verb}, point{what, "output and error", true, true, verb})
		}
	}
	for i := range points {
		all = append(all, i)
	}
	var s survey
	forEachPoint(all, 6, func(i int) {
		c := points[i]
		s.runPoint(t, fmt.Sprintf("%s, standard %s %s", c.verb[0], c.which, c.what), func() error {
			ctx, cancel := context.WithTimeout(t.Context(), runLimit)
			defer cancel()
			cmd := r.command(ctx, "", c.verb...)
			f, done, err := outlets[c.what]()
			if err != nil {
				return err
			}
			defer done()
			if c.out {
				cmd.Stdout = f
			}
			if c.err {
				cmd.Stderr = f
			}
			if c.verb[0] == "watch" {
				return staysAlive(cmd.Start, cmd.Wait, cancel)
			}
			status, err := finish(ctx, cmd)
			if err == nil && status != 1 && status != 3 {
				err = fmt.Errorf("exit status %d", status)
			}
			return err
		})
	})
	s.printCounts(t, "outlets gone, full, read-only, stopped")
}

// staysAlive fails if a program ends by itself within two seconds.
func staysAlive(start, wait func() error, stop func()) error {
	if err := start(); err != nil {
		return err
	}
	var err error
	ended := make(chan struct{})
	go func() { err = wait(); close(ended) }()
	select {
	case <-ended:
		return fmt.Errorf("watch ended: %w", err)
	case <-time.After(2 * time.Second):
		stop()
		<-ended
		return nil
	}
}
