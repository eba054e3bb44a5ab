// Package config reads the configuration files of a Linux machine that concern its network and its
// Kubernetes programs: sysctl.d, modprobe.d, systemd's .ini style, os-release, and the files of
// kubelet and kube-proxy. Its parsers follow the programs that own the formats. Every parser
// returns everything that it could read, and an error for each line that it could not.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"nodegate/internal/host/file"
)

// Files is the source of configuration files. Errors wrap the io/fs sentinels.
type Files interface {
	ReadFile(name string) ([]byte, error)
	ReadDir(name string) ([]string, error)
	ReadLink(name string) (string, error)
}

// File is a configuration file that is in effect.
type File struct {
	Path string
	Text []byte
}

// mostText bounds one configuration file, and also all files of one kind together, in bytes: the
// result of a parser, with an error for each line, takes a hundred times as much memory. All udev
// rules of a desktop have a tenth of this size.
const mostText = 4 << 20

// Dirs returns the directories in which systemd looks for configuration of a kind ("sysctl.d",
// "systemd/network"), highest precedence first. /lib is a directory of its own only before the
// merge of /usr.
func Dirs(kind string) []string {
	return []string{"/etc/" + kind, "/run/" + kind, "/usr/local/lib/" + kind, "/usr/lib/" + kind, "/lib/" + kind}
}

// Collect returns the files in several directories whose names end in suffix, sorted by name. A
// name in an earlier directory masks the same name in later ones; a link to /dev/null masks too,
// but is not returned.
func Collect(files Files, dirs []string, suffix string) ([]File, error) {
	found := map[string]File{}
	masked := map[string]bool{}
	total := 0
	for _, dir := range dirs {
		names, err := ReadDirIfAny(files, dir)
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", dir, err)
		}
		for _, name := range names {
			if _, ok := found[name]; ok || masked[name] || !strings.HasSuffix(name, suffix) {
				continue
			}
			f, null, err := read(files, dir+"/"+name)
			switch {
			case errors.Is(err, fs.ErrNotExist): // a dangling link masks nothing
			case err != nil:
				if _, noDir := files.ReadDir(dir + "/" + name); noDir != nil {
					return nil, err
				} // systemd, kmod and procps also ignore a directory with such a name
			case null:
				masked[name] = true
			default:
				found[name] = f
				total += len(f.Text)
				if err := file.TooMuch(dir, total, mostText); err != nil {
					return nil, err
				}
			}
		}
	}
	var all []File
	for _, name := range slices.Sorted(maps.Keys(found)) {
		all = append(all, found[name])
	}
	return all, nil
}

// WithDropIns returns a file, from the first directory that contains it, and then the .conf files
// that extend it: DIR/NAME.d/*.conf. None of them need exist.
func WithDropIns(files Files, dirs []string, name string) ([]File, error) {
	var all []File
	f, masked, err := First(files, dirs, name)
	if err != nil {
		return nil, err
	}
	if f.Path != "" && !masked {
		all = append(all, f)
	}
	dropIns, err := DropIns(files, dirs, name)
	return append(all, dropIns...), err
}

// First returns a file from the first directory that contains it, without a path if none does.
// masked is true if that directory has a link to /dev/null instead.
func First(files Files, dirs []string, name string) (f File, masked bool, err error) {
	for _, at := range Listed(files, dirs, name) {
		f, masked, err := read(files, at)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if masked {
			f.Path = at
		}
		return f, masked, err
	}
	return File{}, false, nil
}

// Listed returns the paths of a name in the directories that may contain it. Of many names in the same directories, most exist nowhere:
// a host that answers each question once lists the directories, and tries no path.
func Listed(files Files, dirs []string, name string) (all []string) {
	for _, dir := range dirs {
		names, err := files.ReadDir(dir)
		if err == nil && slices.Contains(names, name) || err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = append(all, dir+"/"+name)
		}
	}
	return all
}

// DropIns returns the .conf files that extend a file.
func DropIns(files Files, dirs []string, name string) ([]File, error) {
	return Collect(files, Listed(files, dirs, name+".d"), ".conf")
}

// read recognizes a link to /dev/null without following it: an image may lack that device.
func read(files Files, name string) (f File, null bool, err error) {
	if to, err := files.ReadLink(name); err == nil {
		if !path.IsAbs(to) {
			to = path.Join(path.Dir(name), to)
		}
		if path.Clean(to) == "/dev/null" {
			return File{}, true, nil
		}
	}
	text, err := files.ReadFile(name)
	if err != nil {
		return File{}, false, fmt.Errorf("reading configuration: %w", err)
	}
	if len(text) > mostText {
		return File{}, false, file.TooLarge(name, mostText)
	}
	return File{name, text}, false, nil
}

// ReadIfAny reads a file that may be absent.
func ReadIfAny(files Files, name string) (text []byte, found bool, err error) {
	text, err = files.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return text, err == nil, err
}

// ReadDirIfAny lists a directory that may be absent.
func ReadDirIfAny(files Files, dir string) ([]string, error) {
	names, err := files.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// Filled reports whether a file has content other than white space and "uninitialized", which
// systemd writes into machine-id, or a directory has entries.
func Filled(files Files, name string) (bool, error) {
	if to, err := files.ReadLink(name); err == nil && to == os.DevNull {
		return false, nil
	}
	if names, err := files.ReadDir(name); err == nil { // an empty directory may belong to a package, such as systemd-journal-remote
		return len(names) > 0, nil
	}
	text, _, err := ReadIfAny(files, name)
	content := strings.TrimSpace(string(text))
	return content != "" && content != "uninitialized", err
}

// At returns a position in the form file:line.
func At(file string, line int) string { return fmt.Sprintf("%s:%d", file, line) }

// space is the white space that systemd and kmod strip.
const space = " \t\r\n"

// match is fnmatch(3): path.Match with both spellings of negation, ^ and !. A malformed pattern
// matches nothing.
func match(pattern, name string) bool {
	ok, err := path.Match(strings.ReplaceAll(pattern, "[!", "[^"), name)
	return ok && err == nil
}
