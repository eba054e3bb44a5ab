package host

import (
	"context"
	"io"
	"os"

	"github.com/coreos/go-systemd/v22/journal"
	"golang.org/x/sys/unix"

	"nodegate/internal/host/program"
)

// Level is the urgency of a line, as syslog(3) counts.
type Level int

// The levels that nodegate uses.
const (
	LevelError   = Level(journal.PriErr)
	LevelWarning = Level(journal.PriWarning)
	LevelNotice  = Level(journal.PriNotice)
	LevelInfo    = Level(journal.PriInfo)
)

// Log sends a line to the journal with fields for machines. It returns false where
// standard error is not the journal: then the caller prints the line.
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
	// A console that nobody reads must not block the boot: the line is lost instead.
	_, _ = f.WriteString("\r\n" + line + "\r\n")
}

// IsTerminal reports whether the file is a terminal, which a person reads.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Journal passes the last hour of a unit's journal to read, as lines that begin
// with an ISO time.
func Journal(ctx context.Context, unit string, read func(io.Reader) error) error {
	return program.Stream(ctx, func(_ string, r io.Reader) error { return read(r) },
		"journalctl", "--no-pager", "--quiet", "--output=short-iso", "--since=-1h", "--unit="+unit)
}
