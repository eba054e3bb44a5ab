package image

import (
	"errors"
	"path"
	"slices"
	"strings"
	"syscall"

	"nodegate/internal/host"
	"nodegate/internal/host/config"
)

// leftover is a kind of file that an image must not contain, with patterns for its paths; * matches within one element.
type leftover struct {
	kind     string
	patterns []string
	holds    []config.Trait               // the file must have one of these traits; if none, any content counts
	except   []string                     // patterns of files that do not count
	minor    bool                         // it only warns
	exists   bool                         // an empty file counts too
	remedy   func(files ...string) string // a command for quoted paths; nil removes the files
}

// found is a file of an image that is a leftover.
type found struct {
	name string
	text string // the kind, and the traits that made it one
}

// secrets are the traits of a file that grants access to something.
func secrets() []config.Trait {
	return []config.Trait{config.PrivateKey, config.Token, config.Password}
}

// homes are the directories of the users who can log in, as patterns.
func homes(names ...string) []string { return joinPaths([]string{"/root", "/home/*"}, names...) }

func joinPaths(dirs []string, names ...string) []string {
	var all []string
	for _, dir := range dirs {
		for _, name := range names {
			all = append(all, dir+"/"+name)
		}
	}
	return all
}

// empty truncates files that must stay.
func empty(files ...string) string { return "truncate -s 0 " + strings.Join(files, " ") }

// deleteLines returns a remedy that deletes the lines of a configuration file that match a regular expression of sed.
func deleteLines(pattern string) func(files ...string) string {
	return func(files ...string) string { return "sed -i -E '/" + pattern + "/d' " + strings.Join(files, " ") }
}

// finder finds files, and lists each directory once: most patterns begin with the same ones.
type finder struct {
	*host.Host
	dirs map[string][]string
}

func newFinder(h *host.Host) finder { return finder{h, map[string][]string{}} }

// find returns the files of this kind; a directory with files counts as one that has content.
func (l leftover) find(h finder) (all []found, err error) {
	var names []string
	for _, pattern := range l.patterns {
		matching, err := h.glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range matching {
			if !slices.Contains(names, name) && !slices.ContainsFunc(l.except, func(e string) bool { ok, _ := path.Match(e, name); return ok }) {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		switch f, is, err := l.judge(h, name); {
		case err != nil:
			return nil, err
		case is:
			all = append(all, f)
		}
	}
	return all, nil
}

func (l leftover) judge(h finder, name string) (found, bool, error) {
	if l.holds == nil {
		filled, err := h.Files.Filled(name)
		return found{name, l.kind}, filled || l.exists && err == nil, err
	}
	traits, err := h.traits(name)
	if err != nil {
		return found{}, false, err
	}
	has := slices.DeleteFunc(traits, func(t config.Trait) bool { return !slices.Contains(l.holds, t) })
	words := make([]string, len(has))
	for i, t := range has {
		words[i] = string(t)
	}
	text := l.kind
	if len(l.holds) > 1 {
		text += ": " + strings.Join(words, ", ")
	}
	return found{name, text}, len(has) > 0, nil
}

// traits returns the traits of a file: none if it is missing, or a directory.
func (h finder) traits(name string) ([]config.Trait, error) {
	if _, err := h.Files.ReadDir(name); err == nil {
		return nil, nil
	}
	text, _, err := config.ReadIfAny(h.Files, name)
	return config.Traits(text), err
}

// glob returns the names that match a pattern, sorted.
func (h finder) glob(pattern string) ([]string, error) {
	all := []string{"/"}
	for element := range strings.SplitSeq(strings.TrimPrefix(pattern, "/"), "/") {
		var next []string
		for _, dir := range all {
			names, err := h.list(dir)
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				if matches, err := path.Match(element, name); err != nil {
					return nil, err
				} else if matches {
					next = append(next, path.Join(dir, name))
				}
			}
		}
		all = next
	}
	return all, nil
}

func (h finder) list(dir string) ([]string, error) {
	names, known := h.dirs[dir]
	if known {
		return names, nil
	}
	names, err := h.ReadDirIfAny(dir)
	if errors.Is(err, syscall.ENOTDIR) { // for example /home/aquota.user
		names, err = nil, nil
	}
	if err == nil {
		h.dirs[dir] = names
	}
	return names, err
}
