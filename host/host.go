// Package host is the only door to the kernel, to systemd and to files. What
// goes through it can be recorded as a Snapshot and replayed.
package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Host is a machine, or a file tree that will be one. Its fields are the three
// things nodegate asks of it; each can be the real one, a fake or a replay.
type Host struct {
	Root   string // "/" for the running machine
	Files  Files
	Kernel Kernel
	Links  Links
}

// Files reads and writes by absolute path, inside the root. Errors wrap the
// io/fs sentinels.
type Files interface {
	ReadFile(name string) ([]byte, error)
	// ReadDir is the sorted names in a directory.
	ReadDir(name string) ([]string, error)
	// ReadLink is where a symbolic link points, unresolved.
	ReadLink(name string) (string, error)
	// Write writes in place, as /proc and /sys want it; it makes no file.
	Write(name string, data []byte) error
}

// Kernel is what is asked of the running kernel.
type Kernel interface {
	Release() (string, error)
	// LoadModules loads all of them, with what they depend on, in one call.
	LoadModules(ctx context.Context, names []string) error
}

// Links is what is asked of network interfaces. A link that has gone is
// fs.ErrNotExist, what a driver does not implement errors.ErrUnsupported.
type Links interface {
	List(ctx context.Context) ([]Link, error)
	Driver(ctx context.Context, link string) (string, error)
	// DefaultRoutes is the names of the links that carry a default route.
	DefaultRoutes(ctx context.Context) ([]string, error)
	Features(ctx context.Context, link string) (map[string]Feature, error)
	SetFeatures(ctx context.Context, link string, on map[string]bool) error
	SetMTU(ctx context.Context, link string, mtu int) error
}

// Link is a network interface.
type Link struct {
	Name string `json:"name"`
	Kind string `json:"kind,omitempty"` // "" for a physical one
	MTU  int    `json:"mtu"`
}

// Feature is the state of one offload, as ETHTOOL_GFEATURES tells it.
type Feature struct {
	Available    bool `json:"available"`    // the driver lets it be changed
	Requested    bool `json:"requested"`    // somebody asked for it
	Active       bool `json:"active"`       // it is on
	NeverChanged bool `json:"neverChanged"` // no driver lets it be changed
}

// Fixed tells whether nobody can change the feature.
func (f Feature) Fixed() bool { return !f.Available || f.NeverChanged }

// String is the state as ethtool -k prints it.
func (f Feature) String() string {
	s := "off"
	if f.Active {
		s = "on"
	}
	switch {
	case f.Fixed():
		s += " [fixed]"
	case f.Requested && !f.Active:
		s += " [requested on]"
	case !f.Requested && f.Active:
		s += " [requested off]"
	}
	return s
}

// Open is the machine, or the tree, at root.
// It fails where root is no directory.
func Open(root string) (*Host, error) {
	info, err := os.Stat(root)
	if err != nil {
		return nil, fmt.Errorf("opening root: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("opening root: %s is not a directory", root)
	}
	h := &Host{Root: root, Files: machineFiles{}, Kernel: machineKernel{}, Links: &machineLinks{}}
	if !h.Live() {
		h.Files, h.Kernel, h.Links = treeFiles{root}, noKernel{}, noLinks{}
	}
	return h, nil
}

// Live tells whether the host is a running machine, not a file tree.
func (h *Host) Live() bool { return h.Root == "/" }

// errTree answers what only a running machine can.
var errTree = errors.New("a file tree has no running kernel; ask at --stage image, or without --root")

// Text is a small file's content without surrounding white space.
func (h *Host) Text(name string) (string, error) {
	b, err := h.Files.ReadFile(name)
	return strings.TrimSpace(string(b)), err
}

type noKernel struct{}

func (noKernel) Release() (string, error)                    { return "", errTree }
func (noKernel) LoadModules(context.Context, []string) error { return errTree }

type noLinks struct{}

func (noLinks) List(context.Context) ([]Link, error)                         { return nil, errTree }
func (noLinks) Driver(context.Context, string) (string, error)               { return "", errTree }
func (noLinks) DefaultRoutes(context.Context) ([]string, error)              { return nil, errTree }
func (noLinks) Features(context.Context, string) (map[string]Feature, error) { return nil, errTree }
func (noLinks) SetFeatures(context.Context, string, map[string]bool) error   { return errTree }
func (noLinks) SetMTU(context.Context, string, int) error                    { return errTree }
