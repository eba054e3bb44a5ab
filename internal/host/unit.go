package host

import (
	"context"
	"slices"
	"strings"

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
