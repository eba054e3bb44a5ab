package boot

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nodegate/internal/host/config"
	"nodegate/internal/host/service"
)

// copied has the units of all directories as one directory. A unit hides units of the same name in directories that systemd searches
// later.
type copied struct {
	files        service.Files
	texts, links map[string]string // by name: "a.service", "a.service.d/b.conf", "a.target.wants/b.service"
	from         map[string]string // name -> its path in files
}

func (c copied) has(name string) bool { return c.from[name] != "" }

func (c copied) addDir(from string) error {
	names, err := config.ReadDirIfAny(c.files, from)
	if err != nil {
		return err
	}
	for _, name := range names {
		add := c.addUnit
		switch filepath.Ext(name) {
		case ".wants", ".requires", ".upholds":
			add = c.addWish
		case ".d":
		default:
			if err := c.addUnit(from, name); err != nil {
				return err
			}
			continue
		}
		below, _ := config.ReadDirIfAny(c.files, from+"/"+name) // systemd ignores a file with such a name
		for _, b := range below {
			if err := add(from, name+"/"+b); err != nil {
				return err
			}
		}
	}
	return nil
}

// addUnit adds a unit or a drop-in: its content, its other name, or that it is masked.
func (c copied) addUnit(from, name string) error {
	kinds := []string{
		".service", ".target", ".mount", ".automount", ".swap", ".socket", ".timer", ".path", ".slice", ".device", ".scope", ".conf",
	}
	if c.has(name) || !slices.Contains(kinds, filepath.Ext(name)) {
		return nil
	}
	c.from[name] = from + "/" + name
	to, err := c.files.ReadLink(from + "/" + name)
	switch base := filepath.Base(to); {
	case err != nil: // a file
	case to == "/dev/null":
		c.links[name] = to
		return nil
	case base != filepath.Base(name) && filepath.Ext(name) != ".conf":
		c.links[name] = base
		return nil
	}
	text, found, err := config.ReadIfAny(c.files, from+"/"+name)
	if err != nil || !found {
		return nil //nolint:nilerr // a dangling link or a directory: systemd does not load it either
	}
	c.texts[name] = string(text)
	return nil
}

// addWish adds the link by which one unit wants another. systemd uses only its name.
func (c copied) addWish(from, name string) error {
	if c.has(name) {
		return nil
	}
	c.from[name] = from + "/" + name
	c.links[name] = "../" + filepath.Base(name)
	if target, err := c.files.ReadLink(from + "/" + name); err == nil && target == "/dev/null" {
		c.links[name] = target
	}
	return nil
}

// filesOf returns the true paths of a unit's own file and drop-ins, by their paths in the copy.
func (c copied) filesOf(unit, dir string) map[string]string {
	files := map[string]string{}
	for name, path := range c.from {
		owner, _, _ := strings.Cut(name, ".d/")
		if owner == unit || owner == service.Template(unit) || owner == "service" {
			files[dir+name] = path
		}
	}
	return files
}

func (c copied) write(dir string) error {
	for name, text := range c.texts {
		path := dir + "/" + name
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			return err
		}
	}
	for name, target := range c.links {
		path := dir + "/" + name
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path)); err != nil {
			return err
		}
	}
	return nil
}
