package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/coreos/go-systemd/v22/dbus"
	"github.com/coreos/go-systemd/v22/journal"
	godbus "github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// SystemdRuns tells whether this machine was booted with systemd (sd_booted(3)).
func (h *Host) SystemdRuns() bool {
	info, err := os.Lstat("/run/systemd/system")
	return h.Live() && err == nil && info.IsDir()
}

// ReloadUnits makes the running systemd read its unit files again.
func ReloadUnits(ctx context.Context) error {
	c, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return fmt.Errorf("asking systemd to reload its units: %w; run: systemctl daemon-reload", err)
	}
	defer c.Close()
	if err := c.ReloadContext(ctx); err != nil {
		return fmt.Errorf("asking systemd to reload its units: %w; run: systemctl daemon-reload", err)
	}
	return nil
}

// EnableUnit makes the running systemd enable a unit, as `systemctl enable` does.
func EnableUnit(ctx context.Context, unit string) error {
	c, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return fmt.Errorf("enabling %s: %w", unit, err)
	}
	defer c.Close()
	if _, _, err := c.EnableUnitFilesContext(ctx, []string{unit}, false, false); err != nil {
		return fmt.Errorf("enabling %s: %w", unit, err)
	}
	return nil
}

// StopUnit makes the running systemd stop a unit, as `systemctl stop` does, and
// waits for it. A unit that systemd does not know is stopped already.
func StopUnit(ctx context.Context, unit string) error {
	c, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return fmt.Errorf("stopping %s: %w", unit, err)
	}
	defer c.Close()
	done := make(chan string, 1)
	_, err = c.StopUnitContext(ctx, unit, "replace", done)
	var refused godbus.Error
	if errors.As(err, &refused) && refused.Name == "org.freedesktop.systemd1.NoSuchUnit" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stopping %s: %w", unit, err)
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("stopping %s: systemd answers %q; run: systemctl status %s", unit, result, unit)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopping %s: %w", unit, ctx.Err())
	}
}

// machineUnits asks the running systemd over D-Bus, by one connection that is
// made at the first question.
type machineUnits struct{ conn *dbus.Conn }

func (m *machineUnits) State(ctx context.Context, unit string) (active, file string, err error) {
	if m.conn == nil {
		if info, err := os.Lstat("/run/systemd/system"); err != nil || !info.IsDir() {
			return "inactive", "", nil // where systemd does not run (sd_booted(3)), no unit does
		}
		c, err := dbus.NewSystemdConnectionContext(context.WithoutCancel(ctx))
		if err != nil {
			return "", "", fmt.Errorf("asking systemd about %s: %w", unit, err)
		}
		m.conn = c
	}
	properties, err := m.conn.GetUnitPropertiesContext(ctx, unit)
	if err != nil {
		return "", "", fmt.Errorf("asking systemd about %s: %w", unit, err)
	}
	active, _ = properties["ActiveState"].(string)
	file, _ = properties["UnitFileState"].(string)
	return active, file, nil
}

// BreakGlass tells by which of the two ways the gate was switched off on
// purpose, "" where it was not. /proc/cmdline that cannot be read is not "off".
func (h *Host) BreakGlass(disabledFile string) string {
	if cmdline, err := h.Text("/proc/cmdline"); err == nil {
		for _, word := range strings.Fields(cmdline) {
			if word == "nodegate=off" {
				return "nodegate=off on the kernel command line"
			}
		}
	}
	if _, err := h.Files.ReadFile(disabledFile); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return disabledFile
	}
	return ""
}

// Level is how urgent a line is, as syslog(3) counts.
type Level int

// The levels that nodegate uses.
const (
	LevelError   = Level(journal.PriErr)
	LevelWarning = Level(journal.PriWarning)
	LevelNotice  = Level(journal.PriNotice)
	LevelInfo    = Level(journal.PriInfo)
)

// Log sends a line to the journal with fields for machines, or answers false
// where standard error is not the journal: then the caller prints.
func Log(level Level, line string, fields map[string]string) bool {
	if ok, err := journal.StderrIsJournalStream(); !ok || err != nil {
		return false
	}
	return journal.Send(line, journal.Priority(level), fields) == nil
}

// Console writes a line to the machine's console. A machine without one is no error.
func Console(line string) {
	f, err := os.OpenFile("/dev/console", os.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	// A console that nobody reads must not hold the boot: the line is lost instead.
	_, _ = f.WriteString("\r\n" + line + "\r\n")
}

// IsTerminal tells whether a person reads the file.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
