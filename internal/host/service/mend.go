package service

import (
	"path"
	"slices"
	"strings"

	"nodegate/internal/host/config"
)

// Mend has the commands before a service's start. A file that one of them names may not yet be what the service will find.
type Mend struct {
	commands []shellCode
	// Unread is why a script could not be read that may change any file: a snapshot holds none.
	Unread error
}

type shellCode struct {
	entry config.Entry
	text  string // the command, and its script if it is one
}

// Mends returns the unit's ExecCondition= and ExecStartPre= commands other than the gate.
func (u Unit) Mends(files Files) (m Mend) {
	for _, c := range append(u.commands("ExecCondition"), u.commands("ExecStartPre")...) {
		if c.isGate() {
			continue
		}
		script, err := c.script(files)
		if err != nil {
			m.Unread = err
		}
		m.commands = append(m.commands, shellCode{c.entry, strings.Join(c.words, " ") + "\n" + script})
	}
	return m
}

// Writes returns the line whose command, or its script, names a file and so may write or remove it, "" if there is none.
func (m Mend) Writes(name string) string {
	for _, c := range m.commands {
		if strings.Contains(c.text, name) {
			return c.entry.At()
		}
	}
	return ""
}

// mostScript bounds a script that is read.
const mostScript = 256 << 10

// script returns the text of the shell script that a command runs, "" if it runs none.
func (c command) script(files Files) (string, error) {
	for _, name := range c.words[:min(len(c.words), 3)] { // /opt/a.sh, or /bin/sh -e /opt/a.sh
		if !path.IsAbs(name) {
			continue
		}
		head, err := files.Head(name)
		line, _, _ := strings.Cut(string(head.Start), "\n")
		interpreter, is := strings.CutPrefix(line, "#!")
		if err != nil || !is || !slices.ContainsFunc(strings.Fields(interpreter), func(w string) bool { return strings.HasSuffix(w, "sh") }) {
			continue
		}
		text, found, err := config.ReadIfAny(files, name)
		if err != nil || found && len(text) <= mostScript {
			return string(text), err
		}
	}
	return "", nil
}
