package cage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/file"
)

// Unit is a call of systemctl or service.
type Unit struct{ Verb, Name, How string }

// How a unit was treated.
const (
	Ran    = "ran"
	NotRun = "not run"
	Absent = "absent"
	Later  = "at the next start"
)

// Record lists what the command would have changed on the machine.
type Record struct {
	Files   []string // "deleted /etc/x": a deletion
	Sysctls []string // "kernel.panic = 10"
	Units   []Unit
	Modules []string // that the kernel loaded in the meantime, and keeps
	Hidden  []string // directories that the command could not see
}

// Would returns what the command would have changed, so far. Call it before Close.
func (c *Cage) Would() Record {
	r := Record{Hidden: c.hidden}
	c.walk("root", func(path string, e fs.FileInfo) {
		if !e.IsDir() && !below(path, own) && !c.same("root"+path, e, path) {
			r.Files = append(r.Files, path)
		}
	})
	for i, tree := range c.outside.Trees {
		up := fmt.Sprint("up/", i)
		c.walk(up, func(path string, e fs.FileInfo) {
			switch at := filepath.Join(tree, path); {
			case e.IsDir() && c.opaque(up+path) && exists(at), e.Mode()&fs.ModeCharDevice != 0 && e.Sys().(*syscall.Stat_t).Rdev == 0:
				r.Files = append(r.Files, "deleted "+at)
			case !e.IsDir() && !c.same(up+path, e, at):
				r.Files = append(r.Files, at)
			}
		})
	}
	slices.Sort(r.Files)
	c.walk("sysctl", func(path string, e fs.FileInfo) {
		key := strings.TrimPrefix(path, "/")
		is := strings.Fields(string(c.read("sysctl/"+key, 64<<10)))
		if !e.IsDir() && e.ModTime().Unix() != 0 && !slices.Equal(is, strings.Fields(c.outside.Sysctls[key])) {
			r.Sysctls = append(r.Sysctls, strings.ReplaceAll(key, "/", ".")+" = "+strings.Join(is, " "))
		}
	})
	for units := json.NewDecoder(bytes.NewReader(c.read("root"+private+"/units", 1<<20))); ; {
		var u Unit
		if units.Decode(&u) != nil {
			break
		}
		r.Units = append(r.Units, u)
	}
	for name := range modules() {
		if !c.modules[name] {
			r.Modules = append(r.Modules, name)
		}
	}
	slices.Sort(r.Modules)
	return r
}

// walk calls do with each file below a directory in memory; the command made them.
func (c *Cage) walk(dir string, do func(path string, e fs.FileInfo)) {
	_ = fs.WalkDir(c.root.FS(), dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case strings.Count(path, "/") > 64: // a command may nest them without end
			return fs.SkipDir
		case err != nil:
			return nil
		}
		if info, err := e.Info(); err == nil {
			do(strings.TrimPrefix(path, dir), info)
		}
		return nil
	})
}

// opaque reports whether a directory was deleted and made again.
func (c *Cage) opaque(path string) bool {
	f, err := c.root.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	n, _ := unix.Fgetxattr(int(f.Fd()), "user.overlay.opaque", nil)
	return n > 0
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// same reports whether a file in memory is as the machine's: it was opened for writing, and not changed.
func (c *Cage) same(path string, info fs.FileInfo, machine string) bool {
	was, err := os.Lstat(machine)
	if err != nil || was.Mode() != info.Mode() || was.Size() != info.Size() || was.Size() > 16<<20 {
		return false
	}
	if a, b := was.Sys().(*syscall.Stat_t), info.Sys().(*syscall.Stat_t); a.Uid != b.Uid || a.Gid != b.Gid {
		return false
	}
	if info.Mode().IsRegular() {
		text, err := file.Read(machine, was.Size())
		return err == nil && bytes.Equal(text, c.read(path, was.Size()))
	}
	to, _ := os.Readlink(machine)
	now, _ := c.root.Readlink(path)
	return to == now
}

// read returns at most limit bytes of a file in memory, which may be anything that the command put there.
func (c *Cage) read(path string, limit int64) []byte {
	f, err := c.root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	if file.Regular(f, path) != nil {
		return nil
	}
	text, _ := file.Drain(f, limit)
	return text
}

func modules() map[string]bool {
	all := map[string]bool{}
	text, _ := file.Read("/proc/modules", 1<<20)
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, " ")
		all[name] = true
	}
	return all
}
