package host

import (
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"golang.org/x/sys/unix"

	"nodegate/internal/plain"
)

// Level is the urgency of a line, numbered as in syslog(3).
type Level int

// The levels that nodegate uses.
const (
	LevelError   = Level(journal.PriErr)
	LevelWarning = Level(journal.PriWarning)
	LevelNotice  = Level(journal.PriNotice)
	LevelInfo    = Level(journal.PriInfo)
)

// messageTimeout bounds the wait for the reader of a message: a journald that hangs or a console
// that an operator paused must not block the boot. The message is lost instead. A serial line at
// 9600 baud needs 0.2 s for 200 characters.
const messageTimeout = 2 * time.Second

// LogsToJournal reports whether standard error is the journal.
func LogsToJournal() bool {
	is, err := journal.StderrIsJournalStream()
	return is && err == nil
}

// Log sends a line to the journal with structured fields. It returns false if the journal did not
// accept the line in time.
func Log(level Level, line string, fields map[string]string) bool {
	all := map[string]string{"SYSLOG_IDENTIFIER": "nodegate"}
	for name, value := range fields {
		all[name] = plain.Escape(value)
	}
	return InTime(func() bool { return journal.Send(plain.Escape(line), journal.Priority(level), all) == nil })
}

// Console writes a line to the machine's console. It returns false if the console did not accept
// the line in time, and true on a machine without a console.
func Console(line string) bool {
	return InTime(func() bool {
		f, err := os.OpenFile("/dev/console", os.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		if err != nil {
			return true
		}
		defer f.Close() // may wait for a terminal to drain
		// A console that cannot be polled does not support a deadline: InTime bounds it.
		_ = f.SetWriteDeadline(time.Now().Add(messageTimeout))
		_, err = f.WriteString("\r\n" + plain.Escape(line) + "\r\n")
		return err == nil
	})
}

// Print writes a line to an open file, for example standard error. It returns false if the line was
// not accepted in time.
func Print(w io.Writer, line string) bool {
	return InTime(func() bool {
		_, err := io.WriteString(w, plain.Escape(line)+"\n")
		return err == nil
	})
}

// InTime runs write. It returns false, without waiting for the end, if write takes longer than a
// message may. A write that never returns leaks its goroutine.
func InTime(write func() bool) bool {
	done := make(chan bool, 1)
	go func() { done <- write() }()
	t := time.NewTimer(messageTimeout + time.Second)
	defer t.Stop()
	select {
	case written := <-done:
		return written
	case <-t.C:
		return false
	}
}

// IsTerminal reports whether the file is a terminal.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Columns returns the width of a terminal, or 0 if the terminal does not report it.
func Columns(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// startMessages are systemd's messages about the starts of a service (sd-messages.h): the process
// exited with a failure, the unit started, the unit stopped, a restart is scheduled. journalctl ORs
// several matches of one field.
var startMessages = []string{
	"MESSAGE_ID=98e322203f7a4ed290d09fe03c09fe15", "MESSAGE_ID=39f53479d3a045ac8e11786248231fbf",
	"MESSAGE_ID=9d1aaa27d60140bd96365438aad20286", "MESSAGE_ID=5eb03494b6584870a536b337290809b3",
}

// startLines is how many of these messages are read. A restart writes four of them.
const startLines = 100

// countHeldRestarts returns how many of a unit's restarts followed a start in which the unit's own
// process did not begin, according to the messages in log: NRestarts counts both kinds. A restart
// older than the messages counts as held; without messages none does.
func countHeldRestarts(log string, restarts int) int {
	ends, found := countEnds(log)
	if !found {
		return 0
	}
	return max(0, restarts-ends)
}

// countEnds counts the restarts in log that followed a start in which the unit's own process began, since the last manual start.
// It also reports whether log has any restart.
func countEnds(log string) (int, bool) {
	counter := regexp.MustCompile(`restart counter is at (\d+)`)
	began, ends, at := false, 0, 0
	for line := range strings.Lines(log) {
		m := counter.FindStringSubmatch(line)
		switch {
		case m != nil:
			n, _ := strconv.Atoi(m[1])
			if n <= at {
				ends = 0 // a manual start has reset the counter since
			}
			if began {
				ends++
			}
			at, began = n, false
		case strings.HasPrefix(line, "Stopped "):
			began = false
		// A service of Type=notify counts as started only after its notification, and systemd logs
		// no successful exit.
		case strings.HasPrefix(line, "Started "), strings.Contains(line, "Main process exited"):
			began = true
		}
	}
	return ends, at > 0
}

// lastExit returns how the main process last exited according to the messages, "" if none reports
// it: "kubelet.service: Main process exited, code=exited, status=3/FAILURE". The gate is a control
// process, which is not included.
func lastExit(log string) string {
	said := regexp.MustCompile(`Main process exited, code=(exited|killed|dumped), status=(\d+)`)
	last := ""
	for _, m := range said.FindAllStringSubmatch(log, -1) {
		last = "signal " + m[2]
		if m[1] == "exited" {
			last = "exit status " + m[2]
		}
	}
	return last
}
