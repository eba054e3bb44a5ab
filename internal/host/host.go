// Package host is the only door to the kernel, to systemd and to files. What goes
// through it can be recorded as a Snapshot and replayed.
package host

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"nodegate/internal/host/config"
)

// Host is a machine, or a file tree that will be one. Each field is a kind of
// question; the real machine, a fake or a replay can answer it.
type Host struct {
	Root   string // "/" for the running machine
	Moves  bool   // others change it while it is asked: not a recording, not a file tree
	Files  Files
	Kernel Kernel
	Links  Links
	Units  Units
	// Runtimes is nil where none can be asked: in a file tree.
	Runtimes Runtimes
	Rules    Rules
	// Prove proves the data path of a same-node Service with real packets, and waits
	// for the reply at most as long as wait says. It is nil where nothing can be
	// sent: in a file tree, a replay, a recording.
	Prove func(ctx context.Context, wait time.Duration) (Proof, error)

	Memory *Memory // nil but for watch

	opened []interface{ Close() }
	// Of Once.
	kubelet func() (config.Kubelet, error)
	wanted  func() (map[string]string, error)
}

// Proof is what a probe with real packets found.
type Proof struct {
	Pass     bool
	Lost     string // which packet was lost, where the probe failed: "reply-untranslated"
	Evidence string
	Remedy   string
}

// Files reads and writes by absolute path, inside the root. Errors wrap the
// io/fs sentinels.
type Files interface {
	ReadFile(name string) ([]byte, error)
	// Tail returns the end of a file, at most 32 KiB: of a log.
	Tail(name string) ([]byte, error)
	// ReadDir returns the sorted names in a directory.
	ReadDir(name string) ([]string, error)
	// ReadLink returns the target of a symbolic link, unresolved.
	ReadLink(name string) (string, error)
	// Exists reports whether anything has this name; a symbolic link is not
	// followed. An error is not an answer.
	Exists(name string) (bool, error)
	// Write writes in place, as /proc and /sys need it; it creates no file.
	Write(name string, data []byte) error
	// Space returns what is left of the file system of a file.
	Space(name string) (Space, error)
}

// Space is what is left of a file system, for root.
type Space struct {
	Free       uint64 `json:"free"` // bytes
	FreeInodes uint64 `json:"freeInodes"`
	Inodes     uint64 `json:"inodes"` // 0 where the file system does not count them
}

// Kernel is the running kernel, and the programs beside it.
type Kernel interface {
	Release() (string, error)
	// Synchronised reports whether the kernel's clock follows another one (adjtimex(2)).
	Synchronised() (bool, error)
	// LoadModule loads a module with what it depends on.
	LoadModule(ctx context.Context, name string) error
	// Version returns what a program of the system prints for --version, after other flags: kubelet parses them all first.
	Version(ctx context.Context, program string, flags ...string) (string, error)
	// Complaint runs a program with flags with which it ends, and returns what it says where it fails, "" where it does not. The error is
	// context.DeadlineExceeded where it does not end.
	Complaint(ctx context.Context, program string, flags ...string) (string, error)
}

// Links are the network interfaces. A link that has gone is fs.ErrNotExist, what a
// driver does not implement errors.ErrUnsupported.
type Links interface {
	List(ctx context.Context) ([]Link, error)
	// Get returns a link as it is now, without Master and VXLAN.
	Get(ctx context.Context, name string) (Link, error)
	// Watch sends every notice about a link to events. It returns when a notice was
	// missed, when the subscription fails, or when ctx ends: after a restart, list
	// all links. It calls subscribed as soon as no notice can be missed any more.
	Watch(ctx context.Context, subscribed func(), events chan<- LinkEvent) error
	Driver(ctx context.Context, link string) (string, error)
	// DefaultRoutes returns the names of the links that carry a default route.
	DefaultRoutes(ctx context.Context) ([]string, error)
	// RoutingRules returns the rules that look up routes outside the tables that
	// every machine has.
	RoutingRules(ctx context.Context) ([]RoutingRule, error)
	// Hops returns the gateways of routes over VXLAN links whose entries an agent makes.
	Hops(ctx context.Context) ([]Hop, error)
	// Foreign returns the routes, the rules and the entries of VXLAN links that other programs made: the CNI, people.
	Foreign(ctx context.Context) ([]Foreign, error)
	Features(ctx context.Context, link string) (map[string]Feature, error)
	SetFeatures(ctx context.Context, link string, on map[string]bool) error
	SetMTU(ctx context.Context, link string, mtu int) error
	// Stats returns the counters of the driver, as ethtool -S prints them.
	Stats(ctx context.Context, link string) (map[string]uint64, error)
}

// Units are the units of systemd.
type Units interface {
	// State returns a unit's ActiveState and UnitFileState, as systemctl show prints
	// them: "active", "enabled". A unit that does not exist is "inactive", "".
	State(ctx context.Context, unit string) (active, file string, err error)
	// Crashes returns how a service has been ending. A unit that does not exist is "inactive".
	Crashes(ctx context.Context, unit string) (Crash, error)
	// Outdated reports whether systemd has yet to read a drop-in of a unit, or its other files as they are now. Where systemd does not
	// run, it has not.
	Outdated(ctx context.Context, unit, dropIn string) (bool, error)
	// Reload makes systemd read its unit files again.
	Reload(ctx context.Context) error
	// Enable does what `systemctl enable` does.
	Enable(ctx context.Context, units ...string) error
	// Stop does what `systemctl stop` and `systemctl reset-failed` do. A unit that systemd does not know counts
	// as stopped.
	Stop(ctx context.Context, unit string) error
	// Restart restarts the units, each after the one before has started.
	Restart(ctx context.Context, units ...string) error
}

// Rules are the rules of the packet filter.
type Rules interface {
	// Dumps passes what every iptables backend saves, and kube-proxy's nftables
	// tables as JSON, to read, one after the other; source is the command line.
	Dumps(ctx context.Context, read func(source string, r io.Reader) error) error
	// Others returns what other programs have in nf_tables that Kubernetes comes upon.
	Others(ctx context.Context) (Others, error)
	// Accepts reports whether the kernel accepts a rule of an iptables program. It
	// tries the rule in a scratch network namespace: no rule of the machine changes.
	// rejected is what the program prints, "" where the rule is accepted; err says
	// why it could not be tried.
	Accepts(ctx context.Context, program string, rule ...string) (rejected string, err error)
	// Takes tries rules in one scratch network namespace: whole, and where that is rejected, which of the texts that it
	// consists of are. program reads them: iptables-restore, ip6tables-restore or nft. It returns why each is rejected,
	// "" where it is accepted or was not tried; err says why they could not all be tried, after 12 s context.DeadlineExceeded.
	Takes(ctx context.Context, program, whole string, texts []string) (rejected []string, err error)
}

// Link is a network interface.
type Link struct {
	Name   string `json:"name"`
	Index  int    `json:"index,omitempty"` // differs for a link made again under the same name
	Kind   string `json:"kind,omitempty"`  // "" for a physical one
	MTU    int    `json:"mtu"`
	Master string `json:"master,omitempty"` // the bridge or bond it is a port of
	Up     bool   `json:"up,omitempty"`
	VXLAN  *VXLAN `json:"vxlan,omitempty"`
}

// VXLAN is what only links of kind vxlan have.
type VXLAN struct {
	UDPCSum bool   `json:"udpCSum"` // the outer packet carries a UDP checksum
	Port    int    `json:"port"`
	Parent  string `json:"parent,omitempty"` // the interface it sends through
	// Each packet says where it goes (external): what makes it decides over its size, too, as Open vSwitch does.
	FlowBased bool `json:"flowBased,omitempty"`
	V6        bool `json:"v6,omitempty"` // its own address, or its group, is of IPv6
}

// Feature is the state of one offload, as ETHTOOL_GFEATURES reports it.
type Feature struct {
	Available    bool `json:"available"`    // the driver allows changes
	Requested    bool `json:"requested"`    // somebody asked for it
	Active       bool `json:"active"`       // it is on
	NeverChanged bool `json:"neverChanged"` // no driver allows changes
}

// Fixed reports whether nobody can change the feature.
func (f Feature) Fixed() bool { return !f.Available || f.NeverChanged }

// String returns the state as ethtool -k prints it.
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

// Open opens the machine, or the tree, at root. It fails where root is no directory.
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
			Root: root, Files: treeFiles{root}, Kernel: noKernel{}, Links: noLinks{}, Units: units, Rules: noRules{},
			opened: []interface{ Close() }{units},
		}, nil
	}
	links, units := &machineLinks{}, &machineUnits{socket: systemdSocket}
	return &Host{
		Root: root, Moves: true, Files: machineFiles{}, Kernel: machineKernel{}, Links: links, Units: units, Rules: machineRules{},
		Runtimes: machineRuntimes{},
		opened:   []interface{ Close() }{links, units},
	}, nil
}

// Close closes the sockets that questions have opened. Ask nothing afterwards,
// neither the host nor what Once and Record made of it.
func (h *Host) Close() {
	for _, o := range h.opened {
		o.Close()
	}
}

// Live reports whether the host is a running machine, not a file tree.
func (h *Host) Live() bool { return h.Root == "/" }

// Text returns a small file's content without surrounding white space.
func (h *Host) Text(name string) (string, error) {
	b, err := h.Files.ReadFile(name)
	return strings.TrimSpace(string(b)), err
}
