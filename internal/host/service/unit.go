// Package service reads a service of systemd from the unit files of a machine or of a file tree, and
// judges what systemd will do with it.
package service

import (
	"slices"
	"strings"

	"nodegate/internal/host/config"
	"nodegate/internal/host/file"
)

// Files is the source of units, and of the files that they name.
type Files interface {
	config.Files
	Exists(name string) (bool, error)
	Head(name string) (file.Head, error)
}

// Dirs returns the directories in which systemd looks for units, highest precedence first.
func Dirs() []string {
	return []string{
		"/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/transient", "/run/systemd/generator.early",
		"/etc/systemd/system", "/run/systemd/system", "/run/systemd/generator", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
		"/lib/systemd/system", "/run/systemd/generator.late",
	}
}

// LastingDirs are Dirs without the directories whose content ends with the running systemd. Its generators run again at each boot.
func LastingDirs() []string {
	return slices.DeleteFunc(Dirs(), func(dir string) bool {
		return strings.HasPrefix(dir, "/run/") && dir != "/run/systemd/generator" && dir != "/run/systemd/generator.late"
	})
}

// Unit is a service as its files describe it.
type Unit struct {
	Name    string
	Path    string // of its own file, "" if it has none
	Masked  bool
	Entries []config.Entry // of its file and its drop-ins, in the order in which systemd reads them
}

// Read reads a unit.
func Read(files config.Files, name string) (Unit, error) {
	u, dirs := Unit{Name: name}, Dirs()
	names := []string{name}
	if template := Template(name); template != name {
		names = append(names, template)
	}
	var texts []config.File
	for _, n := range names {
		f, masked, err := config.First(files, dirs, n)
		if err != nil {
			return u, err
		}
		if f.Path == "" {
			continue
		}
		u.Path = f.Path
		if u.Masked = masked || len(f.Text) == 0; !u.Masked {
			texts = append(texts, f)
		}
		break
	}
	var below []string
	for _, n := range append(names, name[strings.LastIndexByte(name, '.')+1:]) { // service.d holds drop-ins of all services
		below = append(below, config.Listed(files, dirs, n+".d")...)
	}
	dropIns, err := config.Collect(files, below, ".conf")
	if err != nil {
		return u, err
	}
	u.Entries, _ = config.ParseFiles(append(texts, dropIns...)) // systemd also ignores unreadable lines
	return u, nil
}

// Template returns the template of an instance: a@.service for a@b.service.
func Template(unit string) string {
	before, instance, ok := strings.Cut(unit, "@")
	if dot := strings.LastIndexByte(instance, '.'); ok && dot >= 0 {
		return before + "@" + instance[dot:]
	}
	return unit
}

// list returns the values of an option that may occur several times; an empty one resets the list.
func (u Unit) list(section string, keys ...string) (all []config.Entry) {
	for _, e := range u.Entries {
		for _, key := range keys {
			switch {
			case e.Section != section || e.Key != key:
			case e.Value == "":
				all = nil
			default:
				all = append(all, e)
			}
		}
	}
	return all
}

// last returns the effective value of an option, "" if it is unset.
func (u Unit) last(section, key string) config.Entry {
	e, _ := config.Last(u.Entries, section, key)
	return e
}
