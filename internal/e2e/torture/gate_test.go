//go:build torture

package torture

import (
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/e2e/torture/inject"
	"nodegate/internal/require"
)

// TestGate replaces or breaks every file that a gate reads and every program that it runs, one at a time.
func TestGate(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	opened, looked, ran := w.listAccesses(gate)
	const workers = 6
	sub := gate
	area := func(name string, n int, points []string, matches func(p string) func(inject.Call) bool, do inject.Action) {
		var s survey
		missed := 0
		forEachPoint(samplePoints(t, len(points), n), workers, func(i int) {
			var err error
			if err = w.attack(sub, matches(points[i]), do); err == errNotReached {
				s.mu.Lock()
				missed++
				s.mu.Unlock()
				return
			}
			s.runPoint(t, sub[0]+", "+points[i]+" "+name, func() error { return err })
		})
		s.printCounts(t, sub[0]+": a file or program "+name)
		if missed > 0 {
			t.Logf("%d were not used in this run: files of other processes, and files that are read only once", missed)
		}
	}
	opens := func(p string) func(inject.Call) bool {
		return func(c inject.Call) bool { return c.Opens() && c.Own() && c.Path() == p }
	}
	for _, name := range []string{"f", "d", "z", "h"} {
		area("is "+fixtures[name], 6, opened, opens, inject.Action{Path: name})
	}
	for _, errno := range []unix.Errno{unix.EACCES, unix.EIO} {
		area("gives "+unix.ErrnoName(errno), 6, opened, opens, inject.Action{Fail: errno})
		area("cannot be inspected: "+unix.ErrnoName(errno), 6, looked, func(p string) func(inject.Call) bool {
			return func(c inject.Call) bool {
				return c.Own() && !c.Writes() && c.Number != unix.SYS_EXECVE && c.Path() == p
			}
		}, inject.Action{Fail: errno})
	}
	area("never answers", 6, opened, opens, inject.Action{Hang: true})
	area("cannot be inspected: never answers", 6, looked, func(p string) func(inject.Call) bool {
		return func(c inject.Call) bool {
			return c.Own() && !c.Opens() && !c.Writes() && c.Number != unix.SYS_EXECVE && c.Path() == p
		}
	}, inject.Action{Hang: true})
	runs := func(p string) func(inject.Call) bool {
		return func(c inject.Call) bool { return c.Number == unix.SYS_EXECVE && !c.Own() && c.Path() == p }
	}
	for _, sub = range []subject{gate, check} {
		if &sub[0] == &check[0] {
			_, _, ran = w.listAccesses(check)
		}
		for name, p := range programs {
			area(p.what, 3, ran, runs, inject.Action{Path: name})
		}
		area("cannot be run: EACCES", 3, ran, runs, inject.Action{Fail: unix.EACCES})
		area("cannot be run: ENOMEM", 3, ran, runs, inject.Action{Fail: unix.ENOMEM})
	}
	// A run's memory counts from the fork on: one that seems to use no more than this process ever did shows this process's.
	var own unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &own))
	t.Logf("the largest run used %d MiB, this process %d MiB", w.maxMemory>>20, own.Maxrss>>10)
	assert.True(t, w.maxMemory <= max(256<<20, own.Maxrss<<10), "a run used %d MiB", w.maxMemory>>20)
}

// TestBreakGlass: the break-glass file works only if it certainly exists; an error does not switch the gate off.
func TestBreakGlass(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	var s survey
	for _, errno := range []unix.Errno{unix.EIO, unix.EACCES, unix.ENOMEM, unix.EMFILE, unix.ESTALE, unix.ETIMEDOUT, unix.ELOOP, unix.ENOTDIR,
		unix.EPERM, unix.ENAMETOOLONG, unix.EOVERFLOW} {
		s.runPoint(t, "break glass: "+unix.ErrnoName(errno), func() error {
			return w.attack(gate, func(c inject.Call) bool { return !c.Opens() && c.Path() == "/etc/nodegate/disabled" }, inject.Action{Fail: errno})
		})
	}
	s.printCounts(t, "gate: break glass cannot be inspected")
}

// TestOutlets runs a gate whose console, journal or /run is stopped, hangs, is full or read-only.
func TestOutlets(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	var s survey
	console := func(c inject.Call) bool { return c.Writes() && c.Path() == "/dev/console" }
	below := func(c inject.Call) bool { return c.Writes() && strings.HasPrefix(c.Path(), "/run/") }
	socket := func(c inject.Call) bool { return c.Receiver() == "/run/systemd/journal/socket" }
	full, err := os.OpenFile(w.dir+"/f", os.O_RDWR|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	defer full.Close()
	require.NoError(t, unix.Mkfifo(w.dir+"/c", 0o600))
	written, err := os.OpenFile(w.dir+"/c", os.O_RDWR|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	defer written.Close()
	for err == nil {
		_, err = unix.Write(int(full.Fd()), make([]byte, 4096))
	}
	for _, a := range []struct {
		what    string
		journal bool
		matches func(inject.Call) bool
		do      inject.Action
	}{
		{"console stopped", false, console, inject.Action{Path: "f"}},
		{"console hangs", false, console, inject.Action{Hang: true}},
		{"console full", false, console, inject.Action{Path: "F"}},
		{"console read-only", false, console, inject.Action{Fail: unix.EROFS}},
		{"journal stopped", true, func(inject.Call) bool { return false }, inject.Action{}},
		{"journal hangs", true, socket, inject.Action{Hang: true}},
		{"journal full", true, socket, inject.Action{Fail: unix.ENOBUFS}},
		{"journal read-only", true, socket, inject.Action{Fail: unix.EROFS}},
		{"/run stopped", false, below, inject.Action{Hang: true}},
		{"/run full", false, func(c inject.Call) bool { return below(c) && c.Needs() }, inject.Action{Fail: unix.ENOSPC}},
		{"/run read-only", false, below, inject.Action{Fail: unix.EROFS}},
	} {
		s.runPoint(t, "gate, "+a.what, func() error {
			var socket *net.UnixConn
			prepare := func(run string) {
				socket, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: run + "/systemd/journal/socket", Net: "unixgram"})
				require.NoError(t, err)
				client, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
				require.NoError(t, err)
				defer func() { _ = unix.Close(client) }()
				require.NoError(t, unix.Connect(client, &unix.SockaddrUnix{Name: run + "/systemd/journal/socket"}))
				for err == nil && a.what == "journal stopped" {
					_, err = unix.Write(client, []byte("MESSAGE=full\n"))
				}
			}
			reached := a.what == "journal stopped"
			out, status, err := w.run(gate, prepare, a.journal, func(c inject.Call) inject.Action {
				switch {
				case a.matches(c):
					reached = true
					return a.do
				case console(c): // this console works
					return inject.Action{Path: "c"}
				}
				return inject.Action{}
			})
			_ = socket.Close()
			if err == nil && !reached {
				return errNotReached
			}
			text := make([]byte, 1<<16)
			n, _ := unix.Read(int(written.Fd()), text) // reads nothing if the attack is on the console
			return gate.judgeRun(out+string(text[:max(n, 0)]), status, err)
		})
	}
	s.printCounts(t, "gate: console, journal, /run stopped, full")
}
