package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Setting is one line of sysctl.d.
type Setting struct {
	Key     string // the path below /proc/sys, or a glob of such paths
	Value   string
	Exclude bool // "-key" without a value: globs leave the key alone
	Lenient bool // "-key = value": systemd-sysctl ignores a failure
	File    string
	Line    int
}

// Glob reports whether the key is a pattern, which may match any number of parameters.
func (s Setting) Glob() bool { return strings.ContainsAny(s.Key, "*?[") }

// At returns file:line.
func (s Setting) At() string { return At(s.File, s.Line) }

// ParseSysctl reads a file of sysctl.d(5). A # or ; begins a comment only at the start of a line:
// after a value it is part of the value.
func ParseSysctl(name string, text []byte) ([]Setting, error) {
	var all []Setting
	var errs []error
	n := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		n++
		line = strings.Trim(line, space)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		key, value, assigns := strings.Cut(line, "=")
		if !assigns && key[0] != '-' {
			errs = append(errs, fmt.Errorf("%s: not an assignment; write key = value", At(name, n)))
			continue
		}
		lenient := assigns && strings.HasPrefix(key, "-")
		key = SysctlPath(strings.Trim(strings.TrimPrefix(key, "-"), space))
		if key == "" {
			errs = append(errs, fmt.Errorf("%s: the assignment lacks a key", At(name, n)))
			continue
		}
		all = append(all, Setting{Key: key, Value: strings.Trim(value, space), Exclude: !assigns, Lenient: lenient, File: name, Line: n})
	}
	return all, errors.Join(errs...)
}

// SysctlPath returns a key as a path below /proc/sys. If the first separator is a dot, dots
// separate and a slash stands for a dot.
func SysctlPath(key string) string {
	if i := strings.IndexAny(key, "./"); i >= 0 && key[i] == '.' {
		key = strings.Map(func(r rune) rune {
			switch r {
			case '.':
				return '/'
			case '/':
				return '.'
			}
			return r
		}, key)
	}
	if key == "" {
		return ""
	}
	return strings.TrimPrefix(path.Clean("/"+key), "/")
}

// Sysctls finds the line that decides a parameter's value.
type Sysctls struct {
	settings []Setting // in the order in which they are applied
}

// SystemdSysctls returns the settings that systemd-sysctl applies at boot: only those in sysctl.d.
// Distributions that want /etc/sysctl.conf to be applied link it as sysctl.d/99-sysctl.conf. A
// later line for the same key replaces an earlier one, and so does an exclusion. Unreadable lines
// are skipped, as the programs skip them; an error means that a file cannot be read.
func SystemdSysctls(files Files) (Sysctls, error) {
	all, err := sysctlFiles(files, func(name string) bool { return !strings.HasPrefix(path.Base(name), ".") })
	counts := map[string]int{} // key -> index of its line
	for i, line := range all {
		before, is := counts[line.Key]
		if !is || all[before].Value != line.Value || all[before].Exclude != line.Exclude {
			counts[line.Key] = i
		}
	}
	var s Sysctls
	for i, line := range all {
		if counts[line.Key] == i {
			s.settings = append(s.settings, line)
		}
	}
	return s, err
}

// ProcpsSysctls returns the settings that `sysctl --system` of procps 4 applies: the same files,
// including hidden ones, and /etc/sysctl.conf last. An exclusion does not undo an assignment. (In
// procps 3, /run masks /etc.)
func ProcpsSysctls(files Files) (Sysctls, error) {
	all, err := sysctlFiles(files, func(string) bool { return true })
	s := Sysctls{settings: all}
	f, null, lastErr := read(files, "/etc/sysctl.conf")
	switch {
	case errors.Is(lastErr, fs.ErrNotExist) || null:
		lastErr = nil
	case lastErr == nil:
		last, _ := ParseSysctl(f.Path, f.Text)
		s.settings = append(s.settings, last...)
	}
	return s, errors.Join(err, lastErr)
}

func sysctlFiles(files Files, counts func(name string) bool) ([]Setting, error) {
	found, err := Collect(files, Dirs("sysctl.d"), ".conf")
	var all []Setting
	for _, f := range found {
		if !counts(f.Path) {
			continue
		}
		settings, _ := ParseSysctl(f.Path, f.Text)
		all = append(all, settings...)
	}
	return all, err
}

// Winner returns the line that decides the value of a parameter, given by its path below /proc/sys.
// A line for the exact key beats every glob, wherever it is; among globs the last one decides.
// Other names of the same parameter count as in the kernel: the last write wins.
func (s Sysctls) Winner(key string, otherNames ...string) (Setting, bool) {
	last := s.winner(key)
	for _, name := range otherNames {
		last = max(last, s.winner(name))
	}
	if last < 0 {
		return Setting{}, false
	}
	return s.settings[last], true
}

func (s Sysctls) winner(key string) int {
	exact, glob, named := -1, -1, false
	for i, line := range s.settings {
		switch {
		case line.Key == key:
			named = true
			if !line.Exclude {
				exact = i
			}
		case !line.Exclude && line.Glob() && match(line.Key, key):
			glob = i
		}
	}
	if named {
		return exact
	}
	return glob
}

// Setters returns every line that assigns to a parameter, in the order of the files.
func (s Sysctls) Setters(key string) []Setting {
	var all []Setting
	for _, line := range s.settings {
		if !line.Exclude && (line.Key == key || line.Glob() && match(line.Key, key)) {
			all = append(all, line)
		}
	}
	return all
}
