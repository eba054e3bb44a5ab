package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"nodegate/internal/host/file"
	"nodegate/internal/host/program"
	"nodegate/internal/plain"
)

// Ran is how a program of the policy ended.
type Ran struct {
	Status int    // its exit status
	Line   string // the first line of its standard output, made harmless
}

// maxLine bounds the first line of a program's output, in bytes.
const maxLine = 300

// runChecked runs a program of the policy until ctx ends. It refuses a program that users other than root may write or replace. No error
// names the arguments, which may contain a secret.
func runChecked(ctx context.Context, command []string) (Ran, error) {
	name := command[0]
	for _, part := range append([]string{name}, interpreters(machineFiles{}, name)...) {
		open, err := file.WhoMayReplace("/", part)
		if err != nil {
			return Ran{}, fmt.Errorf("%s was not run: %w", name, err)
		}
		if len(open) > 0 {
			what := "it"
			if part != name {
				what = part + ", which executes it"
			}
			return Ran{}, fmt.Errorf("%s was not run, because users other than root may write or replace %s: %s", name, what, mend(open))
		}
	}
	status, output, err := program.Status(ctx, name, command[1:]...)
	line, _, _ := strings.Cut(strings.TrimLeft(output, "\r\n\t "), "\n")
	line = strings.ToValidUTF8(strings.TrimSpace(line), "?")
	if len(line) > maxLine {
		line = strings.ToValidUTF8(line[:maxLine], "") + "..."
	}
	return Ran{status, plain.Escape(line)}, err
}

// maxInterpreters is the kernel's limit of scripts that interpret each other (fs/exec.c).
const maxInterpreters = 5

// interpreters returns the programs that execute a script: its first line's, the one that env finds for it, and theirs.
func interpreters(files interface {
	Head(string) (file.Head, error)
}, name string) (all []string) {
	for range maxInterpreters {
		head, err := files.Head(name)
		start, is := strings.CutPrefix(string(head.Start), "#!")
		line, _, _ := strings.Cut(start, "\n")
		words := strings.Fields(line)
		if err != nil || !is || len(words) == 0 {
			return all
		}
		name = words[0]
		all = append(all, name)
		if path.Base(name) == "env" && len(words) > 1 {
			if found, err := program.Find(words[len(words)-1]); err == nil {
				name = found
				all = append(all, name)
			}
		}
	}
	return all
}

// mend returns the commands that revoke the rights of other users.
func mend(open []file.Opening) string {
	var all []string
	for _, o := range open {
		all = append(all, "run `"+o.Mend+" "+plain.Quote(o.Place)+"`")
	}
	return strings.Join(all, "; ")
}

// UnfitProgram returns why nodegate would not run a program that the files contain, and the remedy, or "" if it would.
func (h *Host) UnfitProgram(name string) (wrong, remedy string, err error) {
	head, err := h.Files.Head(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return name + " does not exist", "install " + name + ", or remove it from the policy", nil
	case err != nil:
		return "", "", err
	case head.Dir:
		return name + " is a directory", "name a program in the policy", nil
	case !head.MayExecute():
		return name + " is not executable", "run `chmod +x " + plain.Quote(path.Join(h.Root, name)) + "`", nil
	case h.Openings == nil:
		return "", "", ErrNoPrograms
	}
	for _, part := range append([]string{name}, interpreters(h.Files, name)...) {
		open, err := h.Openings(part)
		if errors.Is(err, fs.ErrNotExist) {
			return part + ", which executes " + name + ", does not exist", "install " + part + ", or remove " + name + " from the policy", nil
		}
		if err != nil {
			return "", "", err
		}
		if len(open) > 0 {
			return part + " may be written or replaced by users other than root", mend(open), nil
		}
	}
	return "", "", nil
}

// ErrNoPrograms is the error of a program of the policy that cannot run here: in a file tree, a recording or a replay.
var ErrNoPrograms = errors.New("a program of the policy runs only on the running machine")
