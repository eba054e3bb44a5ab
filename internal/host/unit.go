package host

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"

	"nodegate/internal/host/config"
	"nodegate/internal/host/program"
	"nodegate/internal/host/service"
)

// LacksUnit reports whether systemd would find no file for a unit. It also returns the services
// whose names look like a kubelet.
func (h *Host) LacksUnit(unit string) (lacks bool, likely []string, err error) {
	lacks = true
	for _, dir := range service.Dirs() {
		names, err := h.ReadDirIfAny(dir)
		if err != nil {
			return false, nil, err
		}
		for _, name := range names {
			if name == unit || name == service.Template(unit) {
				lacks = false
			}
			if looksLikeKubelet(name) && !slices.Contains(likely, name) {
				likely = append(likely, name)
			}
		}
	}
	return lacks, likely, nil
}

// GateUndone returns the location of a drop-in line that removes a unit's gate again: an empty
// ExecStartPre= that systemd reads after our drop-in. It returns "" if the gate stays in effect.
func (h *Host) GateUndone(unit string) (string, error) {
	files, err := config.DropIns(h.Files, config.Dirs("systemd/system"), unit)
	if err != nil {
		return "", err
	}
	entries, _ := config.ParseFiles(files) // systemd also ignores unreadable lines
	gated, undone := false, ""
	for _, e := range entries {
		switch {
		case e.Section != "Service" || e.Key != "ExecStartPre":
		case strings.HasPrefix(e.Value, "+/") && strings.Contains(e.Value, "/nodegate gate"):
			gated, undone = true, ""
		case e.Value == "" && gated:
			gated, undone = false, e.At()
		}
	}
	return undone, nil
}

// BeforeGate returns the commands of a unit that leave something running before its gate decides. gated is false if the unit has no
// gate.
func (h *Host) BeforeGate(unit string) (early []service.Early, gated bool, err error) {
	u, err := service.Read(h.Files, unit)
	if err != nil {
		return nil, false, err
	}
	early, gated = u.BeforeGate()
	return early, gated, nil
}

// GateFirst returns what to do about a command that runs before the gate of a unit.
func GateFirst(unit string, early service.Early) string {
	return "move the command of " + early.Entry.At() + " into ExecStart=, or write " +
		"/etc/systemd/system/" + unit + ".d/20-gate-first.conf: [Service], " +
		"an empty ExecStartPre=, then ExecStartPre=+/usr/local/bin/nodegate gate, then the unit's own ExecStartPre= lines"
}

func looksLikeKubelet(name string) bool {
	base, ok := strings.CutSuffix(name, ".service")
	return ok && (strings.Contains(base, "kubelet") || strings.Contains(base, "kubelite") || // MicroK8s
		strings.HasPrefix(base, "k3s") || strings.HasPrefix(base, "rke2-") || strings.HasPrefix(base, "k0s"))
}

// LikeKubelet describes the services that look like a kubelet.
func LikeKubelet(likely []string) string {
	if len(likely) == 0 {
		return "no unit there looks like a kubelet"
	}
	return "units that look like a kubelet: " + strings.Join(likely, ", ")
}

// Evidence is one observation: its source and the text found there.
type Evidence struct {
	Source string `json:"source"` // file, command or object
	Text   string `json:"text"`   // what was found there
}

// UnitOn reports whether a unit runs now or will run at the next boot. On a running machine it
// queries systemd. In a file tree, and in a root without a running systemd (a chroot in which an
// image is built), it reads the links in the targets. On a machine that is still booting, enabled
// counts as active.
func (h *Host) UnitOn(ctx context.Context, unit string) (bool, Evidence, error) {
	if h.Live() {
		active, file, err := h.Units.State(ctx, unit)
		if err != nil {
			return false, Evidence{}, err
		}
		said := active
		if file != "" {
			said += ", " + file
		}
		on := active == "active" || active == "activating" || active == "reloading" || file == "enabled" || file == "enabled-runtime"
		if on || file != "" {
			return on, Evidence{unit, said}, nil
		}
		linked, where, err := h.unitLinked(unit)
		if err == nil && !linked {
			where = Evidence{unit, said}
		}
		return linked, where, err
	}
	return h.unitLinked(unit)
}

// unitLinked reports whether a unit is linked into a target and not masked.
func (h *Host) unitLinked(unit string) (bool, Evidence, error) {
	if to, err := h.Files.ReadLink("/etc/systemd/system/" + unit); err == nil && to == "/dev/null" {
		return false, Evidence{"/etc/systemd/system/" + unit, "masked"}, nil
	}
	wanted, err := derived(context.Background(), h.memo, "wanted units", func() (map[string]string, error) { return wantedUnits(h.Files) })
	if where, is := wanted[unit]; is {
		return true, Evidence{where, "enabled"}, nil
	}
	return false, Evidence{unit, "not enabled"}, err
}

// wantedUnits returns the units that are linked into a target, with the paths of the links.
func wantedUnits(f config.Files) (map[string]string, error) {
	wanted := map[string]string{}
	for _, dir := range []string{"/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"} {
		names, err := config.ReadDirIfAny(f, dir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if !strings.HasSuffix(name, ".wants") && !strings.HasSuffix(name, ".requires") {
				continue
			}
			units, err := config.ReadDirIfAny(f, dir+"/"+name)
			if err != nil {
				return nil, err
			}
			for _, unit := range units {
				if _, is := wanted[unit]; !is {
					wanted[unit] = dir + "/" + name + "/" + unit
				}
			}
		}
	}
	return wanted, nil
}

// ReadDirIfAny lists a directory that may be absent.
func (h *Host) ReadDirIfAny(dir string) ([]string, error) {
	return config.ReadDirIfAny(h.Files, dir)
}

// ReadIfAny reads a file that may be absent.
func (h *Host) ReadIfAny(name string) (text []byte, found bool, err error) {
	return config.ReadIfAny(h.Files, name)
}

// Crash describes how the runs of a service ended since its last manual start.
type Crash struct {
	Restarts int       `json:"restarts"`          // automatic restarts by systemd since the last manual start
	Held     int       `json:"held,omitempty"`    // restarts after a start in which its own process did not begin because its gate failed
	Earlier  int       `json:"earlier,omitempty"` // the other restarts from before the last change of its unit file or a drop-in
	Active   string    `json:"active"`            // its ActiveState
	Since    time.Time `json:"since,omitzero"`    // when that state began
	Exit     string    `json:"exit,omitempty"`    // how its last process ended: "exit status 1", "signal 9"
	Line     string    `json:"line,omitempty"`    // the last error that it wrote, if it restarts
}

func (m *machineUnits) Crashes(ctx context.Context, unit string) (Crash, error) {
	if _, err := os.Lstat("/run/systemd/system"); err != nil {
		return Crash{Active: "inactive"}, nil // without systemd no unit runs
	}
	var properties map[string]any
	err := m.ask(ctx, func(conn *dbus.Conn) (err error) {
		properties, err = conn.GetAllPropertiesContext(ctx, unit)
		return err
	})
	if err != nil {
		return Crash{}, fmt.Errorf("querying systemd about %s: %w", unit, err)
	}
	restarts, _ := properties["NRestarts"].(uint32) // since systemd 235
	c := Crash{Restarts: int(restarts)}
	c.Active, _ = properties["ActiveState"].(string)
	if since, _ := properties["StateChangeTimestamp"].(uint64); since > 0 {
		c.Since = time.UnixMicro(int64(since)).UTC()
	}
	code, _ := properties["ExecMainCode"].(int32)
	status, _ := properties["ExecMainStatus"].(int32)
	const exited, killed, dumped = 1, 2, 3 // CLD_EXITED, CLD_KILLED and CLD_DUMPED of waitid(2)
	switch code {
	case exited:
		c.Exit = fmt.Sprintf("exit status %d", status)
	case killed, dumped:
		c.Exit = fmt.Sprintf("signal %d", status)
	}
	if restarts > 0 || c.Active == "failed" {
		// A journal that cannot be read leaves these empty.
		journal := func(lines int, arguments ...string) string {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			said, _ := program.Run(ctx, "journalctl", append([]string{"--boot", "--no-pager", "--quiet", "--output=cat",
				fmt.Sprintf("--lines=%d", lines), "--unit=" + unit}, arguments...)...)
			return string(said)
		}
		// Only lines of the service itself: systemd and nodegate write to the same unit's journal
		// over another transport.
		c.Line = KubeletWords(lastError(journal(wordLines, "_TRANSPORT=stdout")), m.files)
		// At each start systemd forgets how the previous main process exited (service_start() in
		// its src/core/service.c resets main_exec_status). While the next process or its gate runs,
		// the properties contain neither that nor whether a main process existed.
		ends := journal(startLines, startMessages...)
		c.Held = countHeldRestarts(ends, c.Restarts)
		c.Exit = cmp.Or(c.Exit, lastExit(ends))
		if changed := unitChanged(properties); ends != "" && !changed.IsZero() && changed.Before(time.Now()) {
			since := journal(startLines, append([]string{fmt.Sprintf("--since=@%d", changed.Unix())}, startMessages...)...)
			n, _ := countEnds(since)
			c.Earlier = max(0, c.Restarts-c.Held-n)
		}
	}
	return c, nil
}

// unitChanged returns when the newest of a unit's file and its drop-ins was written, zero if that is not known. Both are in its properties.
func unitChanged(properties map[string]any) time.Time {
	paths, _ := properties["DropInPaths"].([]string)
	fragment, _ := properties["FragmentPath"].(string)
	var newest time.Time
	for _, path := range append(slices.Clone(paths), fragment) {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	return newest
}

// wordLines is how many lines of kubelet are read: the trace of a panic is long.
const wordLines = 300

// lastError returns the error with which a program exited: the last line that is an error in the format of klog, of its JSON format or of
// Go's log package, or else the last line. An error with which kubelet always exits takes precedence over later ones of the same start,
// which its other goroutines write.
func lastError(log string) string {
	ofKlog, word := regexp.MustCompile(`^[IWEF]\d{4} `), regexp.MustCompile(`\b(?i:error|fatal|panic)\b|"err":`)
	decisive := regexp.MustCompile(`^F\d{4} |^(panic|fatal error): |"(command failed|Kubelet failed to get node info|` +
		`Failed to (start cAdvisor|start ContainerManager|initialize internal modules|listen and serve))"`)
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
		case strings.Contains(line, `"Kubelet version"`): // another start
			last = line
		case strings.HasSuffix(last, "err=<"): // klog's multi-line error
			last += " " + line
		case decisive.MatchString(last) && !decisive.MatchString(line):
		case line != "" && (isError(line) || !isError(last)):
			last = line
		}
	}
	return last
}
