package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"golang.org/x/sys/unix"

	"nodegate/internal/host/file"
	"nodegate/internal/host/program"
	"nodegate/internal/plain"
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

// patience is how long a message may wait for its reader: a journald that hangs
// or a console that somebody stopped must not block the boot. The message is lost
// instead. A serial line of 9600 baud needs 0.2 s for 200 characters.
const patience = 2 * time.Second

// LogsToJournal reports whether standard error is the journal.
func LogsToJournal() bool {
	is, err := journal.StderrIsJournalStream()
	return is && err == nil
}

// Log sends a line to the journal with fields for machines. It returns false where
// the line was not accepted in time.
func Log(level Level, line string, fields map[string]string) bool {
	var b bytes.Buffer
	field := func(name, value string) {
		if !strings.Contains(value, "\n") {
			b.WriteString(name + "=" + value + "\n")
			return
		}
		// systemd.io/JOURNAL_NATIVE_PROTOCOL: a length, for a value of several lines
		b.WriteString(name + "\n")
		b.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(value))))
		b.WriteString(value + "\n")
	}
	field("MESSAGE", plain.Escape(line))
	field("PRIORITY", strconv.Itoa(int(level)))
	field("SYSLOG_IDENTIFIER", "nodegate")
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		field(name, plain.Escape(fields[name]))
	}
	return datagram("/run/systemd/journal/socket", b.Bytes())
}

// datagram sends one message to a socket of systemd's, if it is accepted in time.
func datagram(socket string, message []byte) bool {
	return InTime(func() bool {
		c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
		if err != nil {
			return false
		}
		defer func() { _ = c.Close() }()
		if err := c.SetWriteDeadline(time.Now().Add(patience)); err != nil {
			return false
		}
		_, err = c.Write(message)
		return err == nil
	})
}

// Console writes a line to the machine's console. It returns false where the
// console did not accept the line in time. A machine without a console is no error.
func Console(line string) bool {
	return InTime(func() bool {
		f, err := os.OpenFile("/dev/console", os.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		if err != nil {
			return true
		}
		defer f.Close() // may wait for a terminal to drain
		// A console that cannot be polled has no deadline: InTime bounds it.
		_ = f.SetWriteDeadline(time.Now().Add(patience))
		_, err = f.WriteString("\r\n" + plain.Escape(line) + "\r\n")
		return err == nil
	})
}

// ReportPort is the name of the virtio port at which `nodegate image test` listens, and the family of the product that such a
// machine is by its SMBIOS: kubelet may start before udev has loaded the port's driver.
const ReportPort = "org.nodegate.report"

const reportPort = "/dev/virtio-ports/" + ReportPort

// busy is how long a writer waits before it tries a port again.
const busy = 10 * time.Millisecond

// HasReportPort reports whether somebody tests this machine's image.
func HasReportPort() bool {
	_, err := os.Lstat(reportPort)
	return err == nil || portAnnounced()
}

func portAnnounced() bool {
	family, err := file.Read("/sys/class/dmi/id/product_family", 1<<16) // sysfs says 4096 of each
	return err == nil && strings.TrimSpace(string(family)) == ReportPort
}

// Report writes text to whoever tests this machine's image. It returns false where that did not accept it in time. A machine
// without such a port is no error. One program at a time has a virtio port open (EBUSY, the kernel's virtio_console.c): the gates
// of kubelet and of the boot wait for each other.
func Report(text string) bool {
	return InTime(func() bool {
		end := time.Now().Add(patience)
		f, err := openPort()
		for err != nil && time.Now().Before(end) && (errors.Is(err, unix.EBUSY) || errors.Is(err, fs.ErrNotExist) && portAnnounced()) {
			time.Sleep(busy)
			f, err = openPort()
		}
		if err != nil {
			return errors.Is(err, fs.ErrNotExist) && !portAnnounced()
		}
		defer f.Close()
		_ = f.SetWriteDeadline(end) // what cannot be polled does not block either
		_, err = f.WriteString(plain.Escape(text))
		return err == nil
	})
}

func openPort() (*os.File, error) {
	return os.OpenFile(reportPort, os.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
}

// Persist writes text to the kernel's store for programs, which survives a restart (pstore's pmsg), where there is one. It returns
// false where that did not accept it in time.
func Persist(text string) bool {
	return InTime(func() bool {
		f, err := os.OpenFile("/dev/pmsg0", os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return true
		}
		defer f.Close()
		_, err = f.WriteString(text)
		return err == nil
	})
}

// Print writes a line to a file that somebody else opened, standard error for
// example. It returns false where the line was not accepted in time.
func Print(w io.Writer, line string) bool {
	return InTime(func() bool {
		_, err := io.WriteString(w, plain.Escape(line)+"\n")
		return err == nil
	})
}

// InTime runs write, and returns false without waiting for its end where it takes
// longer than a message may. A write that never returns leaks its goroutine.
func InTime(write func() bool) bool {
	done := make(chan bool, 1)
	go func() { done <- write() }()
	t := time.NewTimer(patience + time.Second)
	defer t.Stop()
	select {
	case written := <-done:
		return written
	case <-t.C:
		return false
	}
}

// IsTerminal reports whether the file is a terminal, which a person reads.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Columns returns the width of a terminal, 0 where it does not say.
func Columns(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// Journal passes the last hour of a unit's journal to read, as lines that begin
// with an ISO time.
func Journal(ctx context.Context, unit string, read func(io.Reader) error) error {
	return program.Stream(ctx, func(_ string, r io.Reader) error { return read(r) },
		"journalctl", "--no-pager", "--quiet", "--output=short-iso", "--since=-1h", "--unit="+unit)
}

// startMessages are those of systemd about how a service's starts go (sd-messages.h): that a process has ended with a failure, that the
// unit is started, that it is stopped, and that it will be restarted. Alternatives for one field are ORed.
var startMessages = []string{
	"MESSAGE_ID=98e322203f7a4ed290d09fe03c09fe15", "MESSAGE_ID=39f53479d3a045ac8e11786248231fbf",
	"MESSAGE_ID=9d1aaa27d60140bd96365438aad20286", "MESSAGE_ID=5eb03494b6584870a536b337290809b3",
}

// held returns how many of a unit's restarts came after a start in which its own process had not begun, by the messages about them:
// NRestarts counts both kinds. A restart that they no longer reach is taken for one of these; without messages none is.
func held(log string, restarts int) int {
	counter := regexp.MustCompile(`restart counter is at (\d+)`)
	began, ends, at := false, 0, 0
	for line := range strings.Lines(log) {
		m := counter.FindStringSubmatch(line)
		switch {
		case m != nil:
			n, _ := strconv.Atoi(m[1])
			if n <= at {
				ends = 0 // somebody has started it since, which resets the counter
			}
			if began {
				ends++
			}
			at, began = n, false
		case strings.HasPrefix(line, "Stopped "):
			began = false
		// A service of Type=notify is started only when it says so, and an end without failure is not written.
		case strings.HasPrefix(line, "Started "), strings.Contains(line, "Main process exited"):
			began = true
		}
	}
	if at == 0 {
		return 0
	}
	return max(0, restarts-ends)
}

// lastExit returns what the last of these messages says of the main process, "" where none does: "kubelet.service: Main process exited,
// code=exited, status=3/FAILURE". The gate is a control process.
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
