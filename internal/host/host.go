// Package host is the only access to the kernel, systemd and files. Everything read through it can
// be recorded as a Snapshot and replayed.
package host

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nodegate/internal/host/boot"
	"nodegate/internal/host/file"
)

// Host is a machine, or a file tree that will become one. Each field answers one kind of query; the
// real machine, a fake or a replay can implement it.
type Host struct {
	Root   string // "/" for the running machine
	Moves  bool   // other programs may change it during a query: false for a snapshot and a file tree
	Files  Files
	Kernel Kernel
	Links  Links
	Units  Units
	// Runtimes is nil if no runtime can be queried: in a file tree.
	Runtimes Runtimes
	Rules    Rules
	// Prove runs a probe of the policy on this machine. It is nil if no packet can be sent: in a file tree, a replay, a recording.
	Prove func(ctx context.Context, h *Host, probe Probe) (Proof, error)

	// Exec runs a program of the policy, and is nil if none may run: in a file tree, a replay, a recording.
	Exec func(ctx context.Context, command []string) (Ran, error)
	// Openings returns the places by which users other than root may replace a file, and is nil if owners are not known: in a replay
	// and a recording.
	Openings func(name string) ([]file.Opening, error)

	Memory *Memory // only set for watch

	opened []interface{ Close() }
	asked  *Host // of a host that asks through a memo: the host that answers
	memo   memo
}

// Probe is a proof with real packets.
type Probe struct {
	Name              string // bridge or service
	Address, Protocol string // of a Service
	Wait              time.Duration
}

// Proof is what a probe with real packets found.
type Proof struct {
	Pass     bool
	Lost     string // the failure: "reply-untranslated", or where a packet died
	Evidence string
	Remedy   string
}

// Files reads and writes by absolute path inside the root. Errors wrap the io/fs sentinels.
type Files interface {
	places
	ReadFile(name string) ([]byte, error)
	// Filled reports whether a file has content other than white space and "uninitialized", or a
	// directory has entries. A missing file and a link to /dev/null are empty.
	Filled(name string) (bool, error)
}

type places interface {
	// ReadDir returns the sorted names in a directory.
	ReadDir(name string) ([]string, error)
	// ReadLink returns the target of a symbolic link, unresolved.
	ReadLink(name string) (string, error)
	// Exists reports whether the name exists, without following a symbolic link. After an error
	// this is unknown.
	Exists(name string) (bool, error)
	// Head returns the type and the beginning of the file to which a name leads.
	Head(name string) (file.Head, error)
	// Write writes in place, as /proc and /sys require; it never creates a file.
	Write(name string, data []byte) error
	// Space returns the free space of the file system that contains a file.
	Space(name string) (Space, error)
}

// Space is the free space of a file system, available to root.
type Space struct {
	Free       uint64 `json:"free"`                // bytes
	Available  uint64 `json:"available,omitempty"` // bytes available to ordinary users, as kubelet counts
	Size       uint64 `json:"size,omitempty"`      // bytes; 0 in an older snapshot
	FreeInodes uint64 `json:"freeInodes"`
	Inodes     uint64 `json:"inodes"` // 0 if the file system does not count them
}

// Kernel is the running kernel and the programs on the machine.
type Kernel interface {
	Release() (string, error)
	// Synchronised reports whether the kernel's clock is synchronised to a time source
	// (adjtimex(2)).
	Synchronised() (bool, error)
	// LoadModule loads a module with options such as "hashsize=65536", and its dependencies.
	LoadModule(ctx context.Context, name string, options ...string) error
	// Version returns the output of a system program for --version, which follows the other flags:
	// kubelet parses all of them first.
	Version(ctx context.Context, program string, flags ...string) (string, error)
	// Complaint runs a program with flags that make it exit. It returns the error output if the
	// program fails, and "" if it succeeds. The error is context.DeadlineExceeded if the program
	// does not exit in time.
	Complaint(ctx context.Context, program string, flags ...string) (string, error)
}

// Links are the network interfaces. The error is fs.ErrNotExist for a link that no longer exists,
// and errors.ErrUnsupported for a feature that the driver does not implement.
type Links interface {
	List(ctx context.Context) ([]Link, error)
	// Get returns the current state of a link, without Master and VXLAN.
	Get(ctx context.Context, name string) (Link, error)
	// Watch sends every link notification to events. It returns when a notification was missed,
	// when the subscription fails, or when ctx ends; list all links after a restart. It calls
	// subscribed once it can no longer miss a notification.
	Watch(ctx context.Context, subscribed func(), events chan<- LinkEvent) error
	Driver(ctx context.Context, link string) (string, error)
	// Addresses returns the addresses of all links.
	Addresses(ctx context.Context) ([]netip.Addr, error)
	// PodMTUs returns the MTU of the other end of each veth whose other end is in another network namespace, by the name of
	// the end that is here. It leaves out ends that do not exist any more.
	PodMTUs(ctx context.Context) (map[string]int, error)
	// DefaultRoutes returns the names of the links that carry a default route.
	DefaultRoutes(ctx context.Context) ([]string, error)
	// RoutingRules returns the rules that look up routes in a table other than those of every
	// machine.
	RoutingRules(ctx context.Context) ([]RoutingRule, error)
	// Hops returns the gateways of routes over VXLAN links whose entries an agent maintains.
	Hops(ctx context.Context) ([]Hop, error)
	// Foreign returns the routes, rules and VXLAN link entries that other programs or people
	// created, such as the CNI.
	Foreign(ctx context.Context) ([]Foreign, error)
	Features(ctx context.Context, link string) (map[string]Feature, error)
	// Tuning returns the numbers of a link's "ring", "channels" or "coalesce", by the names of ethtool(8).
	Tuning(ctx context.Context, link, kind string) (map[string]Amount, error)
	// Set changes settings of one kind, with the values of LinkValues. The driver may fix or round a value, and may reset the link for
	// ring and channels: read them back.
	Set(ctx context.Context, link, kind string, to map[string]string) error
	// Stats returns the driver's counters, as ethtool -S prints them.
	Stats(ctx context.Context, link string) (map[string]uint64, error)
}

// Units are the units of systemd.
type Units interface {
	// State returns a unit's ActiveState and UnitFileState, as systemctl show prints them:
	// "active", "enabled". A unit that does not exist is "inactive", "".
	State(ctx context.Context, unit string) (active, file string, err error)
	// Crashes returns how a service's runs ended. A unit that does not exist is "inactive".
	Crashes(ctx context.Context, unit string) (Crash, error)
	// Loaded returns how systemd has loaded a unit. It returns the zero value if systemd does not
	// run.
	Loaded(ctx context.Context, unit string) (Loaded, error)
	// Boot lets systemd compute the next boot and returns its answer, also about a unit. The error is
	// errors.ErrUnsupported if systemd is not installed here, or has no multi-user.target there.
	Boot(ctx context.Context, unit string) (boot.Boot, error)
	// Reload makes systemd read its unit files again.
	Reload(ctx context.Context) error
	// Enable enables units as `systemctl enable` does.
	Enable(ctx context.Context, units ...string) error
	// Stop stops a unit and resets its failure, as `systemctl stop` and `systemctl reset-failed`
	// do. A unit that systemd does not know counts as stopped.
	Stop(ctx context.Context, unit string) error
	// Restart restarts the units one after the other, each when the previous one has started.
	Restart(ctx context.Context, units ...string) error
}

// Rules are the rules of the packet filter.
type Rules interface {
	// Dumps passes the output of every iptables backend's save program, then kube-proxy's nftables
	// tables as JSON, to read; source is the command line.
	Dumps(ctx context.Context, read func(source string, r io.Reader) error) error
	// Others returns the nf_tables objects of other programs that affect Kubernetes.
	Others(ctx context.Context) (Others, error)
	// Packets sends packets through a replica of this node's network. Question and answer are JSON: a question and an answer of
	// internal/audit/replay.
	Packets(ctx context.Context, question []byte) (answer []byte, err error)
	// Takes tries rules in one scratch network namespace. It first tries whole, the concatenation
	// of texts; if that is rejected, it tries each of the texts alone. program reads them:
	// iptables-restore, ip6tables-restore or nft. Takes returns the reason why each text is
	// rejected, "" if it is accepted or was not tried. err is the reason why not all could be
	// tried; after 12 s it is context.DeadlineExceeded.
	Takes(ctx context.Context, program, whole string, texts []string) (rejected []string, err error)
}

// Open opens the machine or file tree at root. It fails if root is not a directory.
func Open(root string) (*Host, error) {
	if root != "/" {
		info, err := os.Stat(root)
		if err != nil {
			return nil, fmt.Errorf("opening root: %w", err)
		}
		if !info.IsDir() {
			return nil, fmt.Errorf("opening root: %s is not a directory", root)
		}
		files := Marked(treeFiles{root})
		none := memo{Snapshot: &Snapshot{}, absent: errTree}
		units := treeUnits{&machineUnits{socket: filepath.Join(root, systemdSocket), files: files}}
		return &Host{
			Root: root, Files: files, Kernel: askedKernel{frozenKernel{}, none}, Links: askedLinks{frozenLinks{m: none}, none}, Units: units,
			Rules:    askedRules{askedRules{}, none},
			Openings: func(name string) ([]file.Opening, error) { return file.WhoMayReplace(root, path.Join(root, name)) },
			opened:   []interface{ Close() }{units},
		}, nil
	}
	files, links := Marked(machineFiles{}), &machineLinks{}
	units := &machineUnits{socket: systemdSocket, files: files}
	return &Host{
		Root: root, Moves: true, Files: files, Kernel: machineKernel{files}, Links: links,
		Units: units, Rules: machineRules{},
		Runtimes: machineRuntimes{}, Exec: runChecked,
		Openings: func(name string) ([]file.Opening, error) { return file.WhoMayReplace("/", name) },
		opened:   []interface{ Close() }{links, units},
	}, nil
}

// Close closes the sockets that queries have opened. Do not use the host afterwards, nor the hosts
// that Once and Record made from it.
func (h *Host) Close() {
	for _, o := range h.opened {
		o.Close()
	}
}

// source returns the files of the running machine or of a file tree, nil for a recording, a replay or a fake.
func (h *Host) source() Source {
	files := h.Files
	if a, is := files.(askedFiles); is && !a.m.keeps {
		files = a.Files
	}
	marked, _ := files.(markedFiles)
	return marked.Source
}

// Live reports whether the host is a running machine, not a file tree.
func (h *Host) Live() bool { return h.Root == "/" }

// Text returns a small file's content without surrounding white space.
func (h *Host) Text(name string) (string, error) {
	b, err := h.Files.ReadFile(name)
	return strings.TrimSpace(string(b)), err
}

// The asked parts of a host ask through its memo. What they do not have passes on: changes, and questions about this moment.
type (
	askedFiles struct {
		Files
		m memo
	}
	askedKernel struct {
		Kernel
		m memo
	}
	askedLinks struct {
		Links
		m memo
	}
	askedUnits struct {
		Units
		m memo
	}
	askedRules struct {
		Rules
		m memo
	}
	askedRuntimes struct {
		Runtimes
		m memo
	}
)

func (a askedFiles) ReadDir(name string) ([]string, error) {
	return askFile(a, dirKind, name, a.Files.ReadDir)
}
func (a askedFiles) Filled(name string) (bool, error) {
	return askFile(a, "filled", name, a.Files.Filled)
}
func (a askedFiles) Space(name string) (Space, error) {
	return askFile(a, "space", name, a.Files.Space)
}

func (a askedKernel) Release() (string, error) {
	return ask(context.Background(), a.m, "kernel release", "", a.Kernel.Release)
}

func (a askedKernel) Synchronised() (bool, error) {
	return ask(context.Background(), a.m, "state of the clock", "", a.Kernel.Synchronised)
}

func (a askedKernel) Version(ctx context.Context, program string, flags ...string) (string, error) {
	return ask(ctx, a.m, "version of", commandKey(program, flags), func() (string, error) { return a.Kernel.Version(ctx, program, flags...) })
}

func (a askedLinks) List(ctx context.Context) ([]Link, error) {
	links, err := askOnly(ctx, a.m, "links", a.Links.List)
	return slices.Clone(links), err
}

func (a askedLinks) Addresses(ctx context.Context) ([]netip.Addr, error) {
	return askOnly(ctx, a.m, "addresses of the links", a.Links.Addresses)
}

func (a askedLinks) PodMTUs(ctx context.Context) (map[string]int, error) {
	return askOnly(ctx, a.m, "MTU of Pods", a.Links.PodMTUs)
}

func (a askedLinks) DefaultRoutes(ctx context.Context) ([]string, error) {
	return askOnly(ctx, a.m, "default routes", a.Links.DefaultRoutes)
}

func (a askedLinks) RoutingRules(ctx context.Context) ([]RoutingRule, error) {
	return askOnly(ctx, a.m, "routing rules", a.Links.RoutingRules)
}

func (a askedLinks) Hops(ctx context.Context) ([]Hop, error) {
	return askOnly(ctx, a.m, "gateways of VXLAN links", a.Links.Hops)
}

func (a askedLinks) Driver(ctx context.Context, link string) (string, error) {
	return askAbout(ctx, a.m, "driver of", link, a.Links.Driver)
}

func (a askedLinks) Features(ctx context.Context, link string) (map[string]Feature, error) {
	return askAbout(ctx, a.m, "features of", link, a.Links.Features)
}

func (a askedLinks) Tuning(ctx context.Context, link, kind string) (map[string]Amount, error) {
	return ask(ctx, a.m, kind+" of", link, func() (map[string]Amount, error) { return a.Links.Tuning(ctx, link, kind) })
}

func (a askedLinks) Stats(ctx context.Context, link string) (map[string]uint64, error) {
	return askAbout(ctx, a.m, "statistics of", link, a.Links.Stats)
}

func (a askedUnits) Loaded(ctx context.Context, unit string) (Loaded, error) {
	return askAbout(ctx, a.m, "load state of", unit, a.Units.Loaded)
}

func (a askedUnits) Boot(ctx context.Context, unit string) (boot.Boot, error) {
	return askAbout(ctx, a.m, "the boot with", unit, a.Units.Boot)
}

func (a askedRules) Others(ctx context.Context) (Others, error) {
	return askOnly(ctx, a.m, "rules of other programs", a.Rules.Others)
}

func (a askedRuntimes) CRIVersion(ctx context.Context, socket, api string) (string, error) {
	return ask(ctx, a.m, "the "+api+" runtime at", socket, func() (string, error) { return a.Runtimes.CRIVersion(ctx, socket, api) })
}

func (a askedRuntimes) CgroupDriver(ctx context.Context, socket string) (CgroupDriver, error) {
	return askAbout(ctx, a.m, "the cgroup driver of the runtime at", socket, a.Runtimes.CgroupDriver)
}

func (a askedRuntimes) RuntimeSetup(ctx context.Context, socket string) (RuntimeSetup, error) {
	return askAbout(ctx, a.m, "the setup of the runtime at", socket, a.Runtimes.RuntimeSetup)
}
