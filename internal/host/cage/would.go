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

	"golang.org/x/sys/unix"

	"nodegate/internal/host/file"
)

// Unit is a call of systemctl or service.
type Unit struct {
	Verb string `json:"verb"`
	Name string `json:"name"`
	How  string `json:"how"`
}

// How a unit was treated.
const (
	Ran    = "ran"
	NotRun = "not run"
	Absent = "absent"
	Later  = "at the next start"
)

// Record lists the changes of the machine that the command tried.
type Record struct {
	Files   []string `json:"files,omitempty"`   // "deleted /etc/x": a deletion
	Sysctls []string `json:"sysctls,omitempty"` // "kernel.panic = 10"
	Units   []Unit   `json:"units,omitempty"`
	Modules []string `json:"modules,omitempty"` // that the kernel loaded in the meantime, and keeps
	Hidden  []string `json:"hidden,omitempty"`  // directories that the command could not see
}

// Would returns the changes so far. Call it before Close.
func (c *Cage) Would() Record {
	r := Record{Hidden: c.hidden}
	for i, tree := range append([]string{"/"}, c.outside.Trees...) {
		layer := "root"
		if i > 0 {
			layer = fmt.Sprint("up/", i-1)
		}
		c.walk(layer, func(path string, e fs.FileInfo) {
			at := filepath.Join(tree, path)
			old, err := os.Lstat(at)
			switch {
			case i == 0 && below(at, own), e.IsDir() && (err != nil || !c.opaque(layer+path)):
			case e.IsDir(), e.Mode()&fs.ModeCharDevice != 0:
				r.Files = append(r.Files, "deleted "+at)
			case err != nil || !c.same(layer+path, e, at, old):
				r.Files = append(r.Files, at)
			}
		})
	}
	slices.Sort(r.Files)
	c.walk("sysctl", func(path string, e fs.FileInfo) {
		is, key := strings.Fields(string(c.read("sysctl"+path, 64<<10))), strings.TrimPrefix(path, "/")
		if !e.IsDir() && e.ModTime().Unix() != 0 && !slices.Equal(is, strings.Fields(c.outside.Sysctls[key])) {
			r.Sysctls = append(r.Sysctls, strings.ReplaceAll(key, "/", ".")+" = "+strings.Join(is, " "))
		}
	})
	units := json.NewDecoder(bytes.NewReader(c.read("root"+private+"/units", 1<<20)))
	for u := (Unit{}); units.Decode(&u) == nil; u = (Unit{}) {
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

// walk calls do with each file and directory below one in memory. A command may nest them without end.
func (c *Cage) walk(dir string, do func(path string, e fs.FileInfo)) {
	_ = fs.WalkDir(c.root.FS(), dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || strings.Count(path, "/") > 64 {
			return fs.SkipDir
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

// same reports whether a file in memory is as the machine's: it was opened for writing, and not changed.
func (c *Cage) same(path string, info fs.FileInfo, machine string, old fs.FileInfo) bool {
	if info.Mode()&fs.ModeSymlink != 0 {
		was, _ := os.Readlink(machine)
		is, _ := c.root.Readlink(path)
		return was == is
	}
	was, err := file.Read(machine, 16<<20)
	return err == nil && old.Mode() == info.Mode() && old.Size() == info.Size() && bytes.Equal(was, c.read(path, 16<<20))
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
		all[strings.Fields(line)[0]] = true
	}
	return all
}
