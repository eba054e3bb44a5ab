// Package cage runs a command of the operator so that it changes nothing of the machine, and reports what it would change.
package cage

import (
	"context"
	"errors"
	"os"
)

// Outside is the part of the machine that only its first namespaces show. In a further user namespace the kernel refuses a
// layer over a directory that has mounts below it.
type Outside struct {
	Trees   []string          // directories, one for each of Files
	Files   []*os.File        `json:"-"` // cmd.ExtraFiles of the process that calls Run
	Hidden  []string          // directories that a cage cannot show: network file systems
	Sockets []string          // paths of unix sockets
	Sysctls map[string]string // those of net that can be written, by path: net/core/netdev_max_backlog
}

// Look returns the machine as the calling process sees it. Close its Files.
func Look() (*Outside, error) { return &Outside{}, nil }

// Spec is a command and its cage.
type Spec struct {
	Args    []string
	Network int               // descriptor of the network namespace
	Units   map[string]string // ActiveState by unit
	Self    []string          // the arguments with which this program calls Main, /proc/self/exe first
	Outside *Outside          // nil: as the caller sees the machine
}

// Cage is a command's namespaces. They end with Close or with the caller.
type Cage struct {
	Exit  int    // 127: not found; 128+n: ended by signal n
	Ended bool   // the command ended before ctx did
	Said  string // the last 9,000 bytes of its outputs
}

// Unit is a call of systemctl or service.
type Unit struct {
	Verb, Name, How string // How: ran, not run, absent, at the next start
}

// Record lists what the command would have changed on the machine.
type Record struct {
	Files   []string // "deleted /etc/x": a deletion
	Sysctls []string // "kernel.panic = 10"
	Units   []Unit
	Modules []string // that the kernel loaded in the meantime, and keeps
	Hidden  []string // directories that the command could not see
}

// Run runs a command in a cage and returns when it or ctx has ended. Its processes stay until Close. The caller is root of its own
// user, mount and PID namespaces.
func Run(_ context.Context, _ Spec) (*Cage, error) { return nil, errors.New("not built yet") }

// Would returns what the command would have changed.
func (c *Cage) Would() Record { return Record{} }

// Close ends the cage and what is left of it.
func (c *Cage) Close() {}

// Main is the cage's own process. The command line calls it with the arguments that follow Spec.Self, and parses none of them.
func Main(_ []string) int { return 2 }
