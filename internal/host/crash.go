package host

import (
	"context"
	"fmt"
	"nodegate/internal/host/program"
	"os"
	"regexp"
	"strings"
	"time"
)

// Crash is how a service has been ending since somebody started it.
type Crash struct {
	Restarts int       `json:"restarts"`       // by systemd itself, since it was last started by hand
	Active   string    `json:"active"`         // its ActiveState
	Since    time.Time `json:"since,omitzero"` // the beginning of that state
	Exit     string    `json:"exit,omitempty"` // of its last process: "exit status 1", "signal 9"
	Line     string    `json:"line,omitempty"` // the last error that it wrote, where it restarts
}

func (m *machineUnits) Crashes(ctx context.Context, unit string) (Crash, error) {
	if _, err := os.Lstat("/run/systemd/system"); err != nil {
		return Crash{Active: "inactive"}, nil // where systemd does not run, no unit does
	}
	conn, err := m.connect()
	if err != nil {
		return Crash{}, err
	}
	properties, err := conn.GetAllPropertiesContext(ctx, unit)
	if err != nil {
		return Crash{}, fmt.Errorf("asking systemd about %s: %w", unit, err)
	}
	restarts, _ := properties["NRestarts"].(uint32) // since systemd 235
	c := Crash{Restarts: int(restarts)}
	c.Active, _ = properties["ActiveState"].(string)
	if since, _ := properties["StateChangeTimestamp"].(uint64); since > 0 {
		c.Since = time.UnixMicro(int64(since)).UTC()
	}
	code, _ := properties["ExecMainCode"].(int32)
	status, _ := properties["ExecMainStatus"].(int32)
	const exited, killed, dumped = 1, 2, 3 // CLD_EXITED and others of waitid(2)
	switch code {
	case exited:
		c.Exit = fmt.Sprintf("exit status %d", status)
	case killed, dumped:
		c.Exit = fmt.Sprintf("signal %d", status)
	}
	if restarts > 0 {
		// A journal that cannot be read leaves these empty.
		journal := func(match string) string {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			said, _ := program.Run(ctx, "journalctl", "--boot", "--no-pager", "--quiet", "--output=cat", "--lines=30", "--unit="+unit, match)
			return string(said)
		}
		// What the service wrote itself: systemd and nodegate write to the same unit's journal, by another way.
		c.Line = lastError(journal("_TRANSPORT=stdout"))
		if c.Exit == "" { // systemd has forgotten it: the next process runs, or its gate
			c.Exit = lastExit(journal("MESSAGE_ID=" + processExit))
		}
	}
	return c, nil
}

// processExit is the message with which systemd says how a service's process has ended (sd-messages.h, SD_MESSAGE_UNIT_PROCESS_EXIT).
const processExit = "98e322203f7a4ed290d09fe03c09fe15"

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

// lastError returns the last line of a log that is an error, as klog or Go's log package write it, else the last line.
func lastError(log string) string {
	ofKlog, word := regexp.MustCompile(`^[IWEF]\d{4} `), regexp.MustCompile(`\b(?i:error|fatal|panic)\b`)
	isError := func(line string) bool {
		if ofKlog.MatchString(line) {
			return line[0] == 'E' || line[0] == 'F'
		}
		return word.MatchString(line)
	}
	last := ""
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasSuffix(last, "err=<"): // klog's error of several lines
			last += " " + line
		case line != "" && (isError(line) || !isError(last)):
			last = line
		}
	}
	return last
}
