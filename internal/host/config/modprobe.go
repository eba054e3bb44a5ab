package config

import (
	"slices"
	"strings"
)

// Modprobe is one line of modprobe.d.
type Modprobe struct {
	Command string // alias, blacklist, install, options, remove, softdep
	Module  string // with underscores; a pattern in alias and install
	Rest    string // the command of install, the module of alias
	File    string
	Line    int // the first line if a backslash joins several
}

// At returns file:line.
func (m Modprobe) At() string { return At(m.File, m.Line) }

// Text returns the line with single spaces.
func (m Modprobe) Text() string { return m.Command + " " + m.Module + " " + m.Rest }

// Removal returns the remedy that removes the line.
func (m Modprobe) Removal() string { return "remove \"" + m.Text() + "\" from " + m.At() }

// Disables reports whether an install line loads nothing: its whole command is true or false.
func (m Modprobe) Disables() bool {
	words := strings.Fields(m.Rest)
	return m.Command == "install" && len(words) > 0 && (len(words) == 1 || words[1][0] == '#') &&
		slices.Contains([]string{"/bin/false", "/bin/true", "/usr/bin/false", "/usr/bin/true", "false", "true", ":"}, words[0])
}

// ParseModprobe reads a file of modprobe.d(5). A backslash at the end of a line joins the next one,
// even in a comment. Lines that modprobe ignores are left out.
func ParseModprobe(name string, text []byte) (all []Modprobe) {
	for n, line := range joined(string(text)) {
		command, rest := splitWord(line)
		module, rest := splitWord(rest)
		if !strings.HasPrefix(line, "#") && isComplete(command, module, rest) {
			all = append(all, Modprobe{command, strings.ReplaceAll(module, "-", "_"), rest, name, n})
		}
	}
	return all
}

// isComplete reports whether a command belongs to modprobe and has the words that it needs.
func isComplete(command, module, rest string) bool {
	switch command {
	case "blacklist":
		return module != ""
	case "alias", "install", "options", "remove", "softdep", "weakdep":
		return module != "" && rest != ""
	}
	return false
}

// joined yields logical lines with the number of their first physical line.
func joined(text string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		n, first := 0, 1
		var whole strings.Builder
		for line := range strings.SplitSeq(text, "\n") {
			n++
			if cut, goesOn := strings.CutSuffix(line, `\`); goesOn {
				whole.WriteString(cut)
				continue
			}
			whole.WriteString(line)
			if !yield(first, whole.String()) {
				return
			}
			whole.Reset()
			first = n + 1
		}
		if whole.Len() > 0 {
			yield(first, whole.String())
		}
	}
}

func splitWord(s string) (first, rest string) {
	s = strings.TrimLeft(s, " \t")
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		return s, ""
	}
	return s[:i], strings.TrimLeft(s[i:], " \t")
}

// ModprobeConfig returns every line of modprobe.d in the order in which modprobe reads them,
// without the lines that it ignores.
func ModprobeConfig(files Files) ([]Modprobe, error) {
	found, err := Collect(files, Dirs("modprobe.d"), ".conf")
	var all []Modprobe
	for _, f := range found {
		all = append(all, ParseModprobe(f.Path, f.Text)...)
	}
	return all, err
}

// Install returns the install line that modprobe runs instead of loading a module: the first one
// that matches.
func Install(lines []Modprobe, module string) (Modprobe, bool) {
	return firstLine(lines, "install", module)
}

// Blacklisted returns the line that prevents the loading of a module through an alias or by
// systemd-modules-load. modprobe with the module's own name still loads it.
func Blacklisted(lines []Modprobe, module string) (Modprobe, bool) {
	return firstLine(lines, "blacklist", module)
}

func firstLine(lines []Modprobe, command, module string) (Modprobe, bool) {
	module = strings.ReplaceAll(module, "-", "_")
	i := slices.IndexFunc(lines, func(m Modprobe) bool {
		return m.Command == command && (m.Module == module || command == "install" && match(m.Module, module))
	})
	if i < 0 {
		return Modprobe{}, false
	}
	return lines[i], true
}
