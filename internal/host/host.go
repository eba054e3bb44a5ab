// Package host is the only door to the kernel, to systemd and to files. What
// goes through it can be recorded as a Snapshot and replayed.
package host

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Host is a machine, or a file tree that will be one. Its fields are what
// nodegate asks of it; each can be the real one, a fake or a replay.
type Host struct {
	Root   string // "/" for the running machine
	Files  Files
	Kernel Kernel
	Links  Links
	Units  Units
	Rules  Rules
	// Prove proves the data path of a same-node Service with real packets, and
	// waits for the reply as long as it is told. It is nil where nothing can be
	// sent: in a file tree, a replay, a recording.
	Prove func(ctx context.Context, wait time.Duration) (Proof, error)

	opened []interface{ Close() }
}

// Proof is what a probe with real packets found.
type Proof struct {
	Pass     bool
	Lost     string // which packet was lost, where it does not hold: "reply-untranslated"
	Evidence string
	Remedy   string
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
	// LoadModule loads a module with what it depends on.
	LoadModule(ctx context.Context, name string) error
	// Version is what a program of the system prints for --version.
	Version(ctx context.Context, program string) (string, error)
}

// Links is what is asked of network interfaces. A link that has gone is
// fs.ErrNotExist, what a driver does not implement errors.ErrUnsupported.
type Links interface {
	List(ctx context.Context) ([]Link, error)
	// Get returns a link as it is now, without Master and VXLAN.
	Get(ctx context.Context, name string) (Link, error)
	// Watch sends every notice about a link to events. It returns when a notice
	// was missed, when the subscription fails, or when ctx ends; after that only
	// List tells what happened in between. subscribed is called as soon as no
	// notice can be missed any more.
	Watch(ctx context.Context, subscribed func(), events chan<- LinkEvent) error
	Driver(ctx context.Context, link string) (string, error)
	// DefaultRoutes is the names of the links that carry a default route.
	DefaultRoutes(ctx context.Context) ([]string, error)
	// RoutingRules is what looks up routes elsewhere than in the tables that
	// every machine has.
	RoutingRules(ctx context.Context) ([]RoutingRule, error)
	Features(ctx context.Context, link string) (map[string]Feature, error)
	SetFeatures(ctx context.Context, link string, on map[string]bool) error
	SetMTU(ctx context.Context, link string, mtu int) error
	// Stats is the counters that the driver keeps, as ethtool -S prints them.
	Stats(ctx context.Context, link string) (map[string]uint64, error)
}

// Units is what is asked of systemd.
type Units interface {
	// State is a unit's ActiveState and UnitFileState, as systemctl show prints
	// them: "active", "enabled". A unit that is not there is "inactive", "".
	State(ctx context.Context, unit string) (active, file string, err error)
	// Reload makes systemd read its unit files again.
	Reload(ctx context.Context) error
	// Enable does what `systemctl enable` does.
	Enable(ctx context.Context, units ...string) error
	// Stop does what `systemctl stop` does. A unit that systemd does not know is
	// stopped already.
	Stop(ctx context.Context, unit string) error
	// Restart restarts the units, each after the one before has started.
	Restart(ctx context.Context, units ...string) error
}

// Rules is what is asked of the packet filter.
type Rules interface {
	// Dumps hands over what every iptables backend saves, and kube-proxy's
	// nftables tables as JSON, one after the other; source is what was run.
	Dumps(ctx context.Context, read func(source string, r io.Reader) error) error
	// Takes tells whether the kernel takes a rule of an iptables program. It is
	// tried in a scratch network namespace: no rule of the machine is touched.
	// Refused is what the program says, "" where the rule is taken; err is that
	// it could not be tried.
	Accepts(ctx context.Context, program string, rule ...string) (refused string, err error)
}

// Link is a network interface.
type Link struct {
	Name   string `json:"name"`
	Index  int    `json:"index,omitempty"` // a link made again under the same name has another one
	Kind   string `json:"kind,omitempty"`  // "" for a physical one
	MTU    int    `json:"mtu"`
	Master string `json:"master,omitempty"` // the bridge or bond it is a port of
	Up     bool   `json:"up,omitempty"`
	VXLAN  *VXLAN `json:"vxlan,omitempty"`
}

// VXLAN is what a link of kind vxlan has beside.
type VXLAN struct {
	UDPCSum bool   `json:"udpCSum"` // the outer packet carries a UDP checksum
	Port    int    `json:"port"`
	Parent  string `json:"parent,omitempty"` // the interface it sends through
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
	if root != "/" {
		units := treeUnits{&machineUnits{socket: filepath.Join(root, systemdSocket)}}
		return &Host{
			Root: root, Files: treeFiles{root}, Kernel: noKernel{}, Links: noLinks{}, Units: units, Rules: noRules{}, opened: []interface{ Close() }{units},
		}, nil
	}
	links, units := &machineLinks{}, &machineUnits{socket: systemdSocket}
	return &Host{
		Root: root, Files: machineFiles{}, Kernel: machineKernel{}, Links: links, Units: units, Rules: machineRules{}, opened: []interface{ Close() }{links, units},
	}, nil
}

// Close closes the sockets that questions have opened. Nothing may be asked
// afterwards, of the host or of what Once and Record made of it.
func (h *Host) Close() {
	for _, o := range h.opened {
		o.Close()
	}
}

// Live tells whether the host is a running machine, not a file tree.
func (h *Host) Live() bool { return h.Root == "/" }

// Text is a small file's content without surrounding white space.
func (h *Host) Text(name string) (string, error) {
	b, err := h.Files.ReadFile(name)
	return strings.TrimSpace(string(b)), err
}
