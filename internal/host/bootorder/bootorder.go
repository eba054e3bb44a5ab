// Package bootorder finds ordering cycles of a machine's or an image's boot. systemd breaks such a cycle at each boot: it
// does not start one of the units, and does not always choose the same one.
package bootorder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"nodegate/internal/host/config"
	"nodegate/internal/host/program"
	"nodegate/internal/host/service"
)

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

// Find lets the systemd of this machine compute the boot of the units in files, in its test mode and without privileges. It
// reads a copy of the units, so nothing of an image runs. The units of fstab are made by systemd's generator.
func Find(ctx context.Context, files service.Files) ([]Cycle, error) {
	systemd, err := findSystemd()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "nodegate-units-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	to := unitCopy{files: files, dir: dir + "/units", made: map[string]bool{}}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(to.dir, 0o755)); err != nil { // systemd, without privileges, reads it
		return nil, err
	}
	for _, from := range service.Dirs() {
		if err := to.copyDir(from); err != nil {
			return nil, err
		}
	}
	if !to.made["multi-user.target"] {
		return nil, ErrNoTarget
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := to.generateMounts(ctx, filepath.Dir(systemd), dir); err != nil {
		return nil, err
	}
	target := "multi-user.target"
	if to.made["default.target"] {
		target = "default.target"
	}
	env := []string{"SYSTEMD_UNIT_PATH=" + to.dir + ":" + dir + "/generator", "SYSTEMD_LOG_TARGET=console", "SYSTEMD_LOG_LEVEL=warning",
		"SYSTEMD_LOG_COLOR=0", "SYSTEMD_GENERATOR_PATH=" + dir + "/none"}
	printed, err := program.Unprivileged(ctx, env, systemd, "--test", "--system", "--unit="+target)
	if err != nil {
		return nil, fmt.Errorf("testing the boot: %w; in a chroot, mount /dev, /proc and /sys/fs/cgroup first", err)
	}
	return parse(printed), nil
}

func findSystemd() (string, error) {
	for _, name := range []string{"/usr/lib/systemd/systemd", "/lib/systemd/systemd"} {
		if _, err := os.Stat(name); err == nil {
			return name, nil
		}
	}
	return "", ErrNoSystemd
}

func ignoreExist(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// unitCopy is a copy of the units in one directory. A unit hides units of the same name in directories that systemd
// searches later.
type unitCopy struct {
	files service.Files
	dir   string
	made  map[string]bool
}

func (c unitCopy) copyDir(from string) error {
	names, err := config.ReadDirIfAny(c.files, from)
	if err != nil {
		return err
	}
	for _, name := range names {
		switch filepath.Ext(name) {
		case ".d":
			err = c.copyBelow(from, name, c.copyUnit)
		case ".wants", ".requires", ".upholds":
			err = c.copyBelow(from, name, c.copyWish)
		default:
			err = c.copyUnit(from, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c unitCopy) copyBelow(from, dir string, copyOne func(from, name string) error) error {
	names, err := config.ReadDirIfAny(c.files, from+"/"+dir)
	if err != nil {
		return nil //nolint:nilerr // a file with such a name, which systemd ignores
	}
	if err := ignoreExist(os.Mkdir(c.dir+"/"+dir, 0o755)); err != nil {
		return err
	}
	for _, name := range names {
		if err := copyOne(from, dir+"/"+name); err != nil {
			return err
		}
	}
	return nil
}

// copyUnit copies a unit or a drop-in: its content, its other name, or that it is masked.
func (c unitCopy) copyUnit(from, name string) error {
	kinds := []string{
		".service", ".target", ".mount", ".automount", ".swap", ".socket", ".timer", ".path", ".slice", ".device", ".scope", ".conf",
	}
	if c.made[name] || !slices.Contains(kinds, filepath.Ext(name)) {
		return nil
	}
	c.made[name] = true
	to, err := c.files.ReadLink(from + "/" + name)
	switch base := filepath.Base(to); {
	case err != nil: // a file
	case to == "/dev/null":
		return os.Symlink(to, c.dir+"/"+name)
	case base != filepath.Base(name) && filepath.Ext(name) != ".conf":
		return os.Symlink(base, c.dir+"/"+name)
	}
	text, found, err := config.ReadIfAny(c.files, from+"/"+name)
	if err != nil || !found {
		return nil //nolint:nilerr // a dangling link or a directory: systemd does not load it either
	}
	return os.WriteFile(c.dir+"/"+name, text, 0o644)
}

// copyWish copies the link by which one unit wants another. systemd uses only its name.
func (c unitCopy) copyWish(from, name string) error {
	if c.made[name] {
		return nil
	}
	c.made[name] = true
	to := "../" + filepath.Base(name)
	if target, err := c.files.ReadLink(from + "/" + name); err == nil && target == "/dev/null" {
		to = target
	}
	return os.Symlink(to, c.dir+"/"+name)
}

// generateMounts makes the units of fstab, as the generator does at boot. If it ran at this machine's boot, its units exist already.
func (c unitCopy) generateMounts(ctx context.Context, systemdDir, dir string) error {
	text, found, err := config.ReadIfAny(c.files, "/etc/fstab")
	if err != nil || !found || len(strings.TrimSpace(string(text))) == 0 {
		return err
	}
	if made, err := config.ReadDirIfAny(c.files, "/run/systemd/generator"); err != nil || len(made) > 0 {
		return err
	}
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
	if _, err := program.Unprivileged(ctx, env, systemdDir+"/system-generators/systemd-fstab-generator",
		dir+"/generator", dir+"/generator.early", dir+"/generator.late"); err != nil {
		return fmt.Errorf("making the units of /etc/fstab: %w", err)
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

// parse returns the cycles that systemd has printed. Up to systemd 257 it prints one unit on each line: "U: Found ordering cycle on
// A/start", "U: Found dependency on B/start"; later versions print all units on the first line.
func parse(printed string) (all []Cycle) {
	unit := regexp.MustCompile(`[\w@:.\\-]+\.(?:service|target|mount|automount|swap|socket|timer|path|slice|device|scope)\b`)
	for line := range strings.Lines(printed) {
		_, found, starts := strings.Cut(line, "ound ordering cycle")
		if starts {
			all = append(all, nil)
		} else if _, found, _ = strings.Cut(line, "Found dependency on"); found == "" || all == nil {
			continue
		}
		for _, name := range unit.FindAllString(found, -1) {
			if last := &all[len(all)-1]; !slices.Contains(*last, name) {
				*last = append(*last, name)
			}
		}
	}
	all = slices.DeleteFunc(all, func(c Cycle) bool { return len(c) == 0 })
	for i, c := range all { // systemd begins with any of the units
		first := slices.Index(c, slices.Min(c))
		all[i] = append(slices.Clone(c[first:]), c[:first]...)
	}
	return all
}
