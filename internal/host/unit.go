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

	"nodegate/internal/host/config"
	"nodegate/internal/host/program"
)

// LacksUnit reports whether systemd would find no file for a unit, and which services
// there look like a kubelet.
func (h *Host) LacksUnit(unit string) (lacks bool, likely []string, err error) {
	lacks = true
	for _, dir := range []string{
		"/etc/systemd/system", "/run/systemd/system", "/run/systemd/generator", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
		"/lib/systemd/system", "/run/systemd/generator.late",
	} {
		names, err := h.ReadDirIfAny(dir)
		if err != nil {
			return false, nil, err
		}
		for _, name := range names {
			if name == unit || name == template(unit) {
				lacks = false
			}
			if likeKubelet(name) && !slices.Contains(likely, name) {
				likely = append(likely, name)
			}
		}
	}
	return lacks, likely, nil
}

// GateUndone returns the place where a drop-in that systemd reads after ours takes the
// gate of a unit out again, by an empty ExecStartPre; "" where none does.
func (h *Host) GateUndone(unit string) (string, error) {
	files, err := config.DropIns(h.Files, config.Dirs("systemd/system"), unit)
	if err != nil {
		return "", err
	}
	entries, _ := config.ParseFiles(files) // systemd ignores a line that it cannot read, too
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

// template returns the template of a unit that is an instance of one: a@b.service is
// one of a@.service.
func template(unit string) string {
	before, instance, ok := strings.Cut(unit, "@")
	if dot := strings.LastIndexByte(instance, '.'); ok && dot >= 0 {
		return before + "@" + instance[dot:]
	}
	return unit
}

func likeKubelet(name string) bool {
	base, ok := strings.CutSuffix(name, ".service")
	return ok && (strings.Contains(base, "kubelet") || strings.Contains(base, "kubelite") || // MicroK8s
		strings.HasPrefix(base, "k3s") || strings.HasPrefix(base, "rke2-") || strings.HasPrefix(base, "k0s"))
}

// LikeKubelet says which services look like a kubelet.
func LikeKubelet(likely []string) string {
	if len(likely) == 0 {
		return "nothing there looks like a kubelet"
	}
	return "what looks like a kubelet there: " + strings.Join(likely, ", ")
}

// Evidence is one observation: where it was made, and what was found there.
type Evidence struct {
	Source string `json:"source"`
	Text   string `json:"text"`
}

// UnitOn reports whether a unit runs, or will at the next boot: what systemd says
// of a running machine, what is linked into the targets of a file tree, and of a
// root where systemd does not run: a chroot in which an image is made. On a
// machine that is still booting, enabled is as good as active.
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

// unitLinked reports whether a unit is linked into a target, and not masked.
func (h *Host) unitLinked(unit string) (bool, Evidence, error) {
	if to, err := h.Files.ReadLink("/etc/systemd/system/" + unit); err == nil && to == "/dev/null" {
		return false, Evidence{"/etc/systemd/system/" + unit, "masked"}, nil
	}
	read := h.wanted
	if read == nil {
		read = func() (map[string]string, error) { return wantedUnits(h.Files) }
	}
	wanted, err := read()
	if where, is := wanted[unit]; is {
		return true, Evidence{where, "enabled"}, nil
	}
	return false, Evidence{unit, "not enabled"}, err
}

// wantedUnits returns the units that are linked into a target, and where.
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

// Restart makes systemd restart the machine, and does not wait for it.
func Restart(ctx context.Context) error {
	_, err := program.Run(ctx, "systemctl", "--no-block", "reboot")
	return err
}

// Crash is how a service has been ending since somebody started it.
type Crash struct {
	Restarts int       `json:"restarts"`       // by systemd itself, since it was last started by hand
	Held     int       `json:"held,omitempty"` // of these, after a start in which its own process had not begun: its gate had failed
	Active   string    `json:"active"`         // its ActiveState
	Since    time.Time `json:"since,omitzero"` // the beginning of that state
	Exit     string    `json:"exit,omitempty"` // of its last process: "exit status 1", "signal 9"
	Line     string    `json:"line,omitempty"` // the last error that it wrote, where it restarts
}

func (m *machineUnits) Crashes(ctx context.Context, unit string) (Crash, error) {
	if _, err := os.Lstat("/run/systemd/system"); err != nil {
		return Crash{Active: "inactive"}, nil // where systemd does not run, no unit does
	}
	conn, err := m.connect(ctx)
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
		journal := func(lines int, matches ...string) string {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			said, _ := program.Run(ctx, "journalctl", append([]string{"--boot", "--no-pager", "--quiet", "--output=cat",
				fmt.Sprintf("--lines=%d", lines), "--unit=" + unit}, matches...)...)
			return string(said)
		}
		// What the service wrote itself: systemd and nodegate write to the same unit's journal, by another way.
		c.Line = lastError(journal(30, "_TRANSPORT=stdout"))
		// systemd forgets at each start how the main process of the one before has ended (service_start() in its src/core/service.c resets
		// main_exec_status): while the next process runs, or its gate, the properties have neither that nor whether there was one.
		ends := journal(100, startMessages...) // a restart writes four of them
		c.Held = held(ends, c.Restarts)
		c.Exit = cmp.Or(c.Exit, lastExit(ends))
	}
	return c, nil
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
