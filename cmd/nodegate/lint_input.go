package main

import (
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// isManifest reports whether an argument of lint is YAML, which a policy never is.
func isManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(name))
}

// stdinName is the name under which file reads standard input.
const stdinName = "/dev/stdin"

// lintInput sets the policies of a call of lint: its arguments, with standard input for "-". Without arguments it is standard input if
// that brings text: to report ok for the installed policy instead would hide that the text was never read.
func (o *policyInput) lintInput(args []string) {
	o.policies = append(o.policies, args...)
	for i, name := range o.policies {
		if name == "-" {
			o.policies[i] = stdinName
		}
	}
	if len(o.policies) == 0 && bringsText(os.Stdin) {
		o.policies = []string{stdinName}
	}
}

// pipeWait bounds how long lint waits for a pipe's first byte, in milliseconds: a caller may leave an unused pipe open for ever.
const pipeWait = 1000

// bringsText reports whether a pipe or a regular file has something to read.
func bringsText(f *os.File) bool {
	info, err := f.Stat()
	switch {
	case err != nil:
		return false
	case info.Mode().IsRegular():
		at, err := f.Seek(0, 1)
		return err == nil && info.Size() > at
	case info.Mode()&os.ModeNamedPipe == 0:
		return false
	}
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, pipeWait)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLIN != 0
}
