package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Entry is one assignment of an .ini style file.
type Entry struct {
	Section, Key, Value string
	File                string
	Line                int
}

// At returns file:line.
func (e Entry) At() string { return At(e.File, e.Line) }

// ParseINI reads a file as systemd reads its own files: comments are whole lines that begin with #
// or ;, and a backslash at the end of a line joins the next line with a space.
func ParseINI(name string, text []byte) ([]Entry, error) {
	var all []Entry
	var errs []error
	section, n, first := "", 0, 0
	var begun strings.Builder
	for line := range strings.SplitSeq(string(text), "\n") {
		n++
		if start := strings.TrimLeft(line, space); start != "" && (start[0] == '#' || start[0] == ';') {
			continue // also between joined lines
		}
		if begun.Len() == 0 {
			first = n
		}
		// In an even number of backslashes, each pair is a literal backslash.
		if (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1 {
			begun.WriteString(line[:len(line)-1] + " ")
			continue
		}
		line = strings.Trim(begun.String()+line, space)
		begun.Reset()
		if line == "" {
			continue
		}
		if line[0] == '[' {
			if !strings.HasSuffix(line, "]") {
				errs = append(errs, fmt.Errorf("%s: the section header does not end in ]", At(name, first)))
			}
			section = strings.Trim(line, "[]")
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		key = strings.Trim(key, space)
		if !ok || key == "" || section == "" {
			errs = append(errs, fmt.Errorf("%s: not an assignment in a section", At(name, first)))
			continue
		}
		all = append(all, Entry{section, key, strings.Trim(value, space), name, first})
	}
	return all, errors.Join(errs...)
}

// ParseFiles reads several files as if they were one.
func ParseFiles(files []File) ([]Entry, error) {
	var all []Entry
	var errs []error
	for _, f := range files {
		entries, err := ParseINI(f.Path, f.Text)
		all, errs = append(all, entries...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// Last returns the effective assignment of an option that has a single value. It returns false if
// the last value is empty, which restores the default.
func Last(entries []Entry, section, key string) (Entry, bool) {
	for _, e := range slices.Backward(entries) {
		if e.Section == section && e.Key == key {
			return e, e.Value != ""
		}
	}
	return Entry{}, false
}

// ParseBool reads a boolean as systemd spells it.
func ParseBool(s string) (value, ok bool) {
	switch strings.ToLower(s) {
	case "1", "yes", "y", "true", "t", "on":
		return true, true
	case "0", "no", "n", "false", "f", "off":
		return false, true
	}
	return false, false
}
