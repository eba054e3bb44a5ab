package service

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"nodegate/internal/host/config"
)

// Mend is what the commands before a service's start do to files.
type Mend struct {
	removes, writes []mended
	// Unread is why a script could not be read that may change any file: a snapshot holds none.
	Unread error
}

type mended struct {
	name  string // a path, possibly with wildcards
	below bool   // files below it too
	entry config.Entry
}

// Mends returns what the unit's ExecStartPre= commands, other than the gate, do to files. A file that they remove or write is not yet
// what the service will find.
func (u Unit) Mends(files Files) (m Mend) {
	for _, c := range append(u.commands("ExecCondition"), u.commands("ExecStartPre")...) {
		if c.isGate() {
			continue
		}
		for _, s := range flatten(files, c.words, 0) {
			m.add(s, c.entry)
		}
	}
	return m
}

func (m *Mend) add(s simple, entry config.Entry) {
	if s.unread != nil {
		m.Unread = s.unread
	}
	for _, name := range s.writes {
		m.writes = append(m.writes, mended{name, false, entry})
	}
	if len(s.words) == 0 {
		return
	}
	program, args := path.Base(s.words[0]), s.words[1:]
	recursive, names := false, []string(nil)
	for _, a := range args {
		switch {
		case strings.HasPrefix(a, "--") && !strings.Contains(a, "="):
			recursive = recursive || a == "--recursive"
		case strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "--"):
			recursive = recursive || strings.ContainsAny(a, "rR")
		default:
			if _, value, assigned := strings.Cut(a, "="); assigned { // dd of=FILE, --output=FILE
				a = value
			}
			names = append(names, a)
		}
	}
	readers := []string{
		"test", "[", "[[", "ls", "cat", "grep", "stat", "echo", "printf", "head", "tail", "wc", "mount", "umount", "mountpoint", "chmod", "chown",
		"systemctl", "sleep", "true", "modprobe", "sysctl", "iptables", "logger", "swapoff", "chcon", "restorecon",
	}
	switch {
	case slices.Contains([]string{"rm", "unlink", "shred"}, program), program == "find" && slices.Contains(args, "-delete"):
		for _, name := range names {
			m.removes = append(m.removes, mended{name, recursive || program == "find", entry})
		}
	case slices.Contains(readers, program):
	default:
		placing := slices.Contains([]string{"cp", "mv", "install", "ln", "rsync", "tar", "mkdir", "unzip"}, program)
		for i, name := range names {
			m.writes = append(m.writes, mended{name, placing && (i > 0 || len(names) == 1 || program == "mkdir"), entry})
		}
	}
}

// Removes returns the line that removes a file before the service starts, "" if there is none.
func (m Mend) Removes(name string) string { return find(m.removes, name) }

// Writes returns the line that writes a file, or that may write it, before the service starts, "" if there is none.
func (m Mend) Writes(name string) string { return find(m.writes, name) }

func find(all []mended, name string) string {
	for _, a := range all {
		pattern := path.Clean(a.name)
		matches, err := path.Match(pattern, name)
		for _, choice := range braces(a.name) {
			if same, bad := path.Match(path.Clean(choice), name); same && bad == nil {
				matches = true
			}
		}
		if matches && err == nil || a.below && strings.HasPrefix(name, strings.TrimRight(pattern, "/*")+"/") {
			return a.entry.At()
		}
	}
	return ""
}

// braces returns the texts of a shell's brace expansion: /a/{b,c} is /a/b and /a/c.
func braces(text string) []string {
	m := regexp.MustCompile(`^(.*)\{([^{}]*,[^{}]*)\}(.*)$`).FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	var all []string
	for choice := range strings.SplitSeq(m[2], ",") {
		all = append(all, m[1]+choice+m[3])
	}
	return all
}
