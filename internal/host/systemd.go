package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"nodegate/internal/host/boot"
	"nodegate/internal/host/config"
)

// systemdSocket is the socket on which systemd itself listens below its root, for root only and
// without a bus daemon. A container that has only its host's socket can use it too.
const systemdSocket = "/run/systemd/private"

// SystemdRuns reports whether this machine was booted with systemd (sd_booted(3)).
func (h *Host) SystemdRuns() bool {
	_, err := h.Files.ReadDir("/run/systemd/system")
	return h.Live() && err == nil
}

// SystemdListens reports whether the file tree has the socket of a running systemd.
func (h *Host) SystemdListens() bool {
	found, err := h.Files.Exists(systemdSocket)
	return found && err == nil
}

// machineUnits queries systemd through a socket over D-Bus. All queries share one connection, which
// the first one opens. systemd closes it when it re-executes itself (systemctl daemon-reexec, which
// the packages of systemd and libc run); the next query then opens a new one.
type machineUnits struct {
	socket string
	files  Files
	conn   *dbus.Conn
}

func (m *machineUnits) connect(ctx context.Context) (*dbus.Conn, error) {
	if m.conn != nil && m.conn.Connected() {
		return m.conn, nil
	}
	m.Close()
	type answer struct {
		conn *dbus.Conn
		err  error
	}
	answered := make(chan answer)
	go func() { // dial has no deadline, and systemd accepts no connection while it reloads its units
		conn, err := m.dial()
		select {
		case answered <- answer{conn, err}:
		case <-ctx.Done():
			if conn != nil {
				conn.Close()
			}
		}
	}()
	var got answer
	select {
	case got = <-answered:
	case <-ctx.Done():
		got.err = ctx.Err()
	}
	if got.err != nil {
		return nil, fmt.Errorf("connecting to systemd at %s: %w", m.socket, got.err)
	}
	m.conn = got.conn
	return m.conn, nil
}

// ask puts a question to systemd, and puts it again for 3 s while systemd, which answered before, has closed the connection and
// accepts no other: it is re-executing itself.
func (m *machineUnits) ask(ctx context.Context, question func(*dbus.Conn) error) error {
	for try := 0; ; try++ {
		answered := try > 0 || m.conn != nil
		conn, err := m.connect(ctx)
		if err == nil {
			if err = question(conn); err == nil || conn.Connected() {
				return err
			}
		}
		if !answered || try == 30 || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (m *machineUnits) dial() (*dbus.Conn, error) {
	return dbus.NewConnection(func() (*godbus.Conn, error) {
		conn, err := godbus.Dial("unix:path=" + godbus.EscapeBusAddressValue(m.socket))
		if err != nil {
			return nil, err
		}
		if err := conn.Auth([]godbus.Auth{godbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return conn, nil
	})
}

// Close closes the connection.
func (m *machineUnits) Close() {
	if m.conn != nil {
		m.conn.Close()
		m.conn = nil
	}
}

func (m *machineUnits) State(ctx context.Context, unit string) (active, file string, err error) {
	if _, err := os.Lstat("/run/systemd/system"); err != nil {
		return "inactive", "", nil // without systemd no unit runs
	}
	return m.state(ctx, unit)
}

func (m *machineUnits) state(ctx context.Context, unit string) (active, file string, err error) {
	var properties map[string]any
	err = m.ask(ctx, func(conn *dbus.Conn) (err error) {
		properties, err = conn.GetUnitPropertiesContext(ctx, unit)
		return err
	})
	if err != nil {
		return "", "", fmt.Errorf("querying systemd about %s: %w", unit, err)
	}
	active, _ = properties["ActiveState"].(string)
	file, _ = properties["UnitFileState"].(string)
	return active, file, nil
}

// Boot computes the boot with the systemd of this machine, also of a file tree.
func (m *machineUnits) Boot(ctx context.Context, unit string) (boot.Boot, error) {
	return boot.Test(ctx, copiedFiles{m.files}, unit)
}

func (m *machineUnits) Reload(ctx context.Context) error {
	conn, err := m.connect(ctx)
	if err == nil {
		err = conn.ReloadContext(ctx)
	}
	if err != nil {
		return fmt.Errorf("reloading systemd's units: %w; run `systemctl daemon-reload`", err)
	}
	return nil
}

func (m *machineUnits) Enable(ctx context.Context, units ...string) error {
	conn, err := m.connect(ctx)
	if err != nil {
		return err
	}
	for _, unit := range units {
		if _, _, err := conn.EnableUnitFilesContext(ctx, []string{unit}, false, false); err != nil {
			return fmt.Errorf("enabling %s: %w", unit, err)
		}
	}
	return nil
}

func (m *machineUnits) Stop(ctx context.Context, unit string) error {
	conn, err := m.connect(ctx)
	if err != nil {
		return err
	}
	err = runJob(ctx, "stopping", unit, conn.StopUnitContext)
	if err == nil { // a failed unit stays listed even without its file
		err = conn.ResetFailedUnitContext(ctx, unit)
	}
	if answer, is := errors.AsType[godbus.Error](err); is && answer.Name == "org.freedesktop.systemd1.NoSuchUnit" {
		return nil
	}
	return err
}

func (m *machineUnits) Restart(ctx context.Context, units ...string) error {
	conn, err := m.connect(ctx)
	if err != nil {
		return err
	}
	for _, unit := range units {
		if err := runJob(ctx, "restarting", unit, conn.RestartUnitContext); err != nil {
			return err
		}
	}
	return nil
}

// Stops reports whether systemd is stopping a unit for good. During a restart the job has another type.
func Stops(ctx context.Context, unit string) bool {
	m := &machineUnits{socket: systemdSocket}
	defer m.Close()
	return m.stops(ctx, unit)
}

func (m *machineUnits) stops(ctx context.Context, unit string) (stops bool) {
	err := m.ask(ctx, func(conn *dbus.Conn) error {
		jobs, err := conn.ListJobsContext(ctx)
		stops = slices.ContainsFunc(jobs, func(j dbus.JobStatus) bool { return j.Unit == unit && j.JobType == "stop" })
		return err
	})
	return err == nil && stops
}

// runJob starts a systemd job and waits for its end.
func runJob(ctx context.Context, act, unit string, start func(context.Context, string, string, chan<- string) (int, error)) error {
	done := make(chan string, 1)
	if _, err := start(ctx, unit, "replace", done); err != nil {
		return fmt.Errorf("%s %s: %w", act, unit, err)
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("%s %s: systemd reports %q; run `systemctl status %s` on that machine", act, unit, result, unit)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s %s: %w", act, unit, ctx.Err())
	}
}

func (treeUnits) Crashes(context.Context, string) (Crash, error) { return Crash{}, errTree }

// treeUnits is the systemd whose root is the file tree, as a container sees its host. It can load
// installed units; the state of its units is not part of the tree.
type treeUnits struct{ *machineUnits }

func (treeUnits) State(context.Context, string) (active, file string, err error) {
	return "", "", errTree
}

// Loaded returns the zero value: a file tree's systemd may run another version of the tree's units.
func (treeUnits) Loaded(context.Context, string) (Loaded, error) { return Loaded{}, nil }

// SystemdHas reports whether the systemd whose root is the file tree responds and has a file for a
// unit.
func (h *Host) SystemdHas(ctx context.Context, unit string) bool {
	tree, ok := h.Units.(treeUnits)
	if !ok {
		return false
	}
	_, file, err := tree.state(ctx, unit)
	return err == nil && file != ""
}

// SystemdVersion reads systemd's version from the name of its shared library
// (libsystemd-shared-252.so), which exists both in a file tree and on a running machine.
func (h *Host) SystemdVersion() (int, Evidence, error) {
	dirs := []string{
		"/usr/lib/systemd", "/lib/systemd", "/usr/lib64/systemd", "/usr/lib/x86_64-linux-gnu/systemd", "/usr/lib/aarch64-linux-gnu/systemd",
	}
	var unreadable error
	for _, dir := range dirs {
		names, err := h.Files.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			unreadable = err
		}
		for _, name := range names {
			rest, ok := strings.CutPrefix(name, "libsystemd-shared-")
			major, _, _ := strings.Cut(config.LeadingNumbers(rest), ".")
			if v, err := strconv.Atoi(major); ok && err == nil {
				return v, Evidence{dir + "/" + name, "systemd " + major}, nil
			}
		}
	}
	if unreadable != nil {
		return 0, Evidence{}, unreadable
	}
	return 0, Evidence{}, fmt.Errorf("could not determine systemd's version: no libsystemd-shared-* in %s", strings.Join(dirs, ", "))
}
