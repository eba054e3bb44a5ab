// Package boot asks systemd about the boot of a machine or an image: its ordering cycles, and whether and how it starts a unit. systemd
// breaks a cycle at each boot: it does not start one of the units, and does not always choose the same one.
package boot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nodegate/internal/host/config"
	"nodegate/internal/host/program"
	"nodegate/internal/host/service"
)

// Boot is the answer of systemd.
type Boot struct {
	Cycles []Cycle        `json:"cycles,omitempty"`
	Unit   service.Answer `json:"unit,omitzero"`
}

// Cycle has the units of an ordering cycle, each ordered after the next one, and the last one after the first.
type Cycle []string

// Has reports whether a unit whose name begins with a prefix is in the cycle.
func (c Cycle) Has(prefix string) bool {
	return slices.ContainsFunc(c, func(unit string) bool { return strings.HasPrefix(unit, prefix) })
}

func (c Cycle) String() string { return strings.Join(append(slices.Clone(c), c[0]), " after ") }

// These errors report that no boot can be computed.
var (
	ErrNoSystemd = fmt.Errorf("systemd is not installed here: %w", errors.ErrUnsupported)
	ErrNoTarget  = fmt.Errorf("no unit multi-user.target: %w", errors.ErrUnsupported)
)

const timeout = 30 * time.Second

// Test lets the systemd of this machine compute the boot of the units in files, in its test mode and without privileges. It reads a copy
// of the units, so nothing of an image runs. The units of fstab are made by systemd's generator.
func Test(ctx context.Context, files service.Files, unit string) (b Boot, err error) {
	systemd, err := findSystemd()
	if err != nil {
		return b, err
	}
	units := copied{files: files, texts: map[string]string{}, links: map[string]string{}, from: map[string]string{}}
	for _, dir := range service.LastingDirs() {
		if err := units.addDir(dir); err != nil {
			return b, err
		}
	}
	if !units.has("multi-user.target") {
		return b, ErrNoTarget
	}
	target := "multi-user.target"
	if units.has("default.target") {
		target = "default.target"
	}
	// A unit that another one is only ordered after is loaded, but gets no job.
	const look = "nodegate-look.target"
	units.texts[look] = "[Unit]\nDefaultDependencies=no\nRequires=" + target + "\nAfter=" + unit + "\n"
	fstab, err := ungenerated(files)
	if err != nil {
		return b, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = inPrivate(func(dir string) error {
		if err := units.write(dir + "/units"); err != nil {
			return err
		}
		if len(fstab) > 0 {
			if err := generateMounts(ctx, fstab, filepath.Dir(systemd), dir); err != nil {
				return err
			}
		}
		env := []string{"SYSTEMD_UNIT_PATH=" + dir + "/units:" + dir + "/generator", "SYSTEMD_LOG_TARGET=console", "SYSTEMD_LOG_LEVEL=warning",
			"SYSTEMD_LOG_COLOR=0", "SYSTEMD_GENERATOR_PATH=" + dir + "/none"}
		out, said, err := program.Unprivileged(ctx, env, systemd, "--test", "--system", "--unit="+look)
		if err != nil {
			return fmt.Errorf("testing the boot: %w: %s", err, lastLine(said))
		}
		b = Boot{parseCycles(said), parseUnit(string(out), unit)}
		b.Unit.Complaints = Complaints(said, unit, units.filesOf(unit, dir+"/units/"))
		b.Unit.Path = cmp.Or(units.from[unit], units.from[service.Template(unit)])
		b.Unit.Starts = b.Unit.Starts || slices.ContainsFunc(b.Cycles, func(c Cycle) bool { return slices.Contains(c, unit) })
		return nil
	})
	return b, err
}

func findSystemd() (string, error) {
	for _, name := range []string{"/usr/lib/systemd/systemd", "/lib/systemd/systemd"} {
		if _, err := os.Stat(name); err == nil {
			return name, nil
		}
	}
	return "", ErrNoSystemd
}

func lastLine(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	return config.PlainMessage(lines[len(lines)-1])
}

// ungenerated returns fstab, unless the generator ran at this machine's boot, so that its units exist already.
func ungenerated(files service.Files) ([]byte, error) {
	text, _, err := config.ReadIfAny(files, "/etc/fstab")
	if err != nil {
		return nil, err
	}
	if made, err := config.ReadDirIfAny(files, "/run/systemd/generator"); err != nil || len(made) > 0 {
		return nil, err
	}
	return bytes.TrimLeft(text, " \t\n"), nil
}

// generateMounts makes the units of fstab, as the generator does at boot.
func generateMounts(ctx context.Context, text []byte, systemdDir, dir string) error {
	fstab := dir + "/fstab"
	if err := os.WriteFile(fstab, text, 0o644); err != nil {
		return err
	}
	for _, d := range []string{dir + "/generator", dir + "/generator.early", dir + "/generator.late"} {
		if err := errors.Join(os.Mkdir(d, 0o755), program.GiveAway(d)); err != nil {
			return err
		}
	}
	env := []string{"SYSTEMD_FSTAB=" + fstab, "SYSTEMD_SYSROOT_FSTAB=/dev/null", "SYSTEMD_PROC_CMDLINE=", "SYSTEMD_LOG_TARGET=console"}
	if _, said, err := program.Unprivileged(ctx, env, systemdDir+"/system-generators/systemd-fstab-generator",
		dir+"/generator", dir+"/generator.early", dir+"/generator.late"); err != nil {
		return fmt.Errorf("making the units of /etc/fstab: %w: %s", err, lastLine(said))
	}
	mounts, err := filepath.Glob(dir + "/generator/*.mount")
	for _, m := range mounts {
		made, err := os.ReadFile(m)
		if err != nil {
			return err
		}
		if !strings.Contains(string(made), "SourcePath="+fstab) {
			return errors.New("making the units of /etc/fstab: this machine's systemd always reads its own fstab")
		}
	}
	return err
}
