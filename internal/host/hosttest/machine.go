// Package hosttest is a fake machine: it keeps state, changes it as a kernel would, and rejects what a kernel rejects.
package hosttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"
	"syscall"

	"nodegate/internal/host"
	"nodegate/internal/host/boot"
	"nodegate/internal/host/config"
	"nodegate/internal/host/file"
)

// Machine is the state of the fake. Fill it in before use.
type Machine struct {
	Kernel   string                       // uname -r; "" means 6.1.0
	Files    map[string]string            // path -> content, or "-> TARGET" for a link; directories are implied
	Refuse   map[string]error             // path -> error of a write; "r "+path of a read, "l " link, "s " statfs, "x " run, "modprobe "
	Clamp    map[string]string            // path -> the value that the kernel stores at every write
	Modes    map[string]fs.FileMode       // path -> permissions; 0755 for other paths
	Modules  map[string]map[string]string // installed module, not loaded -> the parameters that it adds
	Links    map[string]*Link
	Notices  chan host.LinkEvent          // about links
	Routes   []string                     // links with a default route
	IPs      []netip.Addr                 // addresses of the links
	Routing  []host.RoutingRule           // rules other than those of every machine
	Version  map[string]string            // program -> output for --version; "... hangs": it does not exit
	Said     map[string]string            // program -> its error output
	Units    map[string][2]string         // unit -> ActiveState, UnitFileState
	Rules    map[string]string            // command line -> its output
	Runtime  map[string]string            // "v1 SOCKET" -> name and version of the runtime; other sockets have no listener
	Spaces   map[string]host.Space        // path -> free space; plenty for other paths
	Crashes  map[string]host.Crash        // unit -> how its runs ended
	Loaded   map[string]host.Loaded       // unit -> how systemd has loaded it; the zero value for other units
	Boot     *boot.Boot                   // nil: systemd cannot compute it
	Packets  string                       // JSON of what packets show in a replica; "" means that none are lost
	Others   host.Others                  // objects of other programs in nf_tables
	Hops     []host.Hop                   // gateways over VXLAN links
	Unsynced bool                         // the clock is not synchronised
	Foreign  []host.Foreign               // routes and rules of other programs
	Cgroups  map[string]host.CgroupDriver // socket -> the runtime's driver
	// Lacks is program -> words in the texts that the kernel rejects. With "program WORD" the program itself rejects them; with "cache WORD"
	// it finds no nf_tables. A program without a key is not installed.
	Lacks map[string][]string
	Ran   map[string]host.Ran // command line of the policy's program -> how it ends; others are not installed
	Log   []string            // every requested change
}

// Link is a network interface of a Machine.
type Link struct {
	Index        int
	Kind, Driver string
	MTU          int
	PodMTU       int // of the other end of a veth, 0 if that is in the same namespace
	Features     map[string]host.Feature
	Master       string
	VXLAN        *host.VXLAN
	Stats        map[string]uint64
	Tuning       map[string]map[string]host.Amount // by kind; a kind without a key is not supported
}

// Host returns the machine in the form that checks use.
func (m *Machine) Host() *host.Host {
	if m.Kernel == "" {
		m.Kernel = "6.1.0"
	}
	other := host.Replay(&host.Snapshot{Root: "/"})
	return &host.Host{Root: "/", Files: m.files(), Kernel: kernel{m, other.Kernel}, Links: links{m, other.Links}, Units: units{m, other.Units},
		Rules: rules{m, other.Rules}, Runtimes: runtimes{m, other.Runtimes}, Exec: m.exec, Openings: m.openings}
}

func (m *Machine) openings(name string) ([]file.Opening, error) {
	if m.Modes[name]&0o022 != 0 {
		return []file.Opening{{Place: name, Mend: "chmod go-w"}}, nil
	}
	return nil, nil
}

func (m *Machine) exec(_ context.Context, command []string) (host.Ran, error) {
	if ran, ok := m.Ran[strings.Join(command, " ")]; ok {
		return ran, nil
	}
	return host.Ran{}, fmt.Errorf("%s was not run: %w", command[0], fs.ErrNotExist)
}

// Sysctl sets a parameter by its path below /proc/sys.
func (m *Machine) Sysctl(key, value string) { m.Files["/proc/sys/"+key] = value + "\n" }

// String returns the changeable state, sorted: parameters, modules, links.
func (m *Machine) String() string {
	var lines []string
	for name, content := range m.Files {
		if key, ok := strings.CutPrefix(name, "/proc/sys/"); ok {
			lines = append(lines, key+" = "+strings.TrimSpace(content))
		}
		if mod, ok := strings.CutSuffix(name, "/initstate"); ok {
			lines = append(lines, "module "+path.Base(mod))
		}
	}
	for name, l := range m.Links {
		lines = append(lines, fmt.Sprintf("link %s mtu %d", name, l.MTU))
		for feature, f := range l.Features {
			lines = append(lines, fmt.Sprintf("link %s %s: %s", name, feature, f))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

type files struct{ *Machine }

func (m *Machine) files() host.Files { return host.Marked(files{m}) }

func (m files) ReadFile(name string) ([]byte, fs.FileMode, error) {
	if err := m.Refuse["r "+name]; err != nil {
		return nil, 0, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	if c, ok := m.Files[name]; ok {
		return []byte(c), cmp.Or(m.Modes[name], 0o755), nil
	}
	if dir, is := strings.CutSuffix(name, "/status"); is && m.Files[dir+"/stat"] != "" { // a process of root unless Files says otherwise
		return []byte("Name:\ta\nUid:\t0\t0\t0\t0\n"), 0o444, nil
	}
	return nil, 0, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
}

func (m files) ReadDir(name string) ([]string, error) {
	found := map[string]bool{}
	for f := range m.Files {
		if rest, ok := strings.CutPrefix(f, strings.TrimSuffix(name, "/")+"/"); ok {
			first, _, _ := strings.Cut(rest, "/")
			found[first] = true
		}
	}
	if len(found) == 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

func (m files) Exists(name string) (bool, error) {
	if err := m.Refuse[name]; err != nil {
		return false, &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	_, ok := m.Files[name]
	return ok, nil
}

func (m files) ReadLink(name string) (string, error) {
	if err := m.Refuse["l "+name]; err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	if to, is := strings.CutPrefix(m.Files[name], "-> "); is {
		return to, nil
	}
	if dir, is := strings.CutSuffix(name, "/ns/net"); is && (dir == "/proc/self" || m.Files[dir+"/stat"] != "") {
		return "net:[1]", nil
	}
	return "", &fs.PathError{Op: "readlink", Path: name, Err: syscall.ENOENT}
}

// Head returns a file that root may execute, unless Modes has other permissions.
func (m files) Head(name string) (file.Head, error) {
	if _, err := m.ReadDir(name); err == nil {
		return file.Head{Dir: true, Mode: 0o755}, nil
	}
	if _, _, err := m.ReadFile(name); err != nil {
		return file.Head{}, err
	}
	return file.Head{Mode: cmp.Or(m.Modes[name], 0o755), Start: []byte(m.Files[name])}, nil
}

func (m files) Write(name string, data []byte) error {
	m.Log = append(m.Log, "write "+name+" "+strings.TrimSpace(string(data)))
	if err := m.Refuse[name]; err != nil {
		return &fs.PathError{Op: "write", Path: name, Err: err}
	}
	if _, ok := m.Files[name]; !ok {
		return &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
	}
	if to, ok := m.Clamp[name]; ok {
		data = []byte(to + "\n")
	}
	m.Files[name] = string(data)
	return nil
}

func (m files) Space(name string) (host.Space, error) {
	if err := m.Refuse["s "+name]; err != nil {
		return host.Space{}, &fs.PathError{Op: "statfs", Path: name, Err: err}
	}
	if s, ok := m.Spaces[name]; ok {
		return s, nil
	}
	return host.Space{Free: 1 << 40, FreeInodes: 1 << 20, Inodes: 1 << 20}, nil
}

// The fake does not answer a new question until a test needs it.
type (
	otherKernel   = host.Kernel
	otherLinks    = host.Links
	otherUnits    = host.Units
	otherRules    = host.Rules
	otherRuntimes = host.Runtimes
)

type kernel struct {
	*Machine
	otherKernel
}

func (m kernel) Release() (string, error) { return m.Kernel, nil }

func (m kernel) Version(_ context.Context, program string, flags ...string) (string, error) {
	switch v, ok := m.Machine.Version[program]; {
	case strings.HasSuffix(v, "hangs"):
		return "", fmt.Errorf("%s --version did not end: %w", program, context.DeadlineExceeded)
	case ok:
		return host.PlainVersion(v), nil
	}
	return "", fmt.Errorf("%s is not installed", program)
}

func (m kernel) Complaint(_ context.Context, program string, flags ...string) (string, error) {
	return m.words(m.Said[program]), m.Refuse["x "+program]
}

// words returns kubelet's words without values of its private files.
func (m *Machine) words(text string) string {
	return host.KubeletWords(text, m.files())
}

func (m kernel) Synchronised() (bool, error) { return !m.Unsynced, nil }

func (m kernel) LoadModule(_ context.Context, name string, options ...string) error {
	m.Log = append(m.Log, strings.Join(append([]string{"modprobe", name}, options...), " "))
	if err := m.Refuse["modprobe "+name]; err != nil {
		return err
	}
	brings, ok := m.Modules[name]
	if !ok {
		return fmt.Errorf("modprobe: FATAL: Module %s not found", name)
	}
	delete(m.Modules, name)
	m.Files["/sys/module/"+name+"/initstate"] = "live\n"
	for _, o := range options {
		key, value, _ := strings.Cut(o, "=")
		m.Files["/sys/module/"+name+"/parameters/"+key] = value + "\n"
	}
	for key, value := range brings {
		m.Sysctl(key, value)
	}
	return nil
}

type runtimes struct {
	*Machine
	otherRuntimes
}

func (m runtimes) CRIVersion(_ context.Context, socket, api string) (string, error) {
	if v, ok := m.Runtime[api+" "+socket]; ok {
		return v, nil
	}
	for key := range m.Runtime {
		if strings.HasSuffix(key, " "+socket) {
			return "", fmt.Errorf("no CRI %s: %w", api, errors.ErrUnsupported)
		}
	}
	return "", &fs.PathError{Op: "connect", Path: socket, Err: syscall.ENOENT}
}

func (m runtimes) CgroupDriver(_ context.Context, socket string) (host.CgroupDriver, error) {
	if d, ok := m.Cgroups[socket]; ok {
		return d, nil
	}
	return host.CgroupDriver{}, errors.ErrUnsupported
}

func (m runtimes) RuntimeSetup(context.Context, string) (host.RuntimeSetup, error) {
	return host.RuntimeSetup{}, errors.ErrUnsupported
}

type units struct {
	*Machine
	otherUnits
}

func (m units) State(_ context.Context, unit string) (active, file string, err error) {
	if s, ok := m.Units[unit]; ok {
		return s[0], s[1], nil
	}
	return "inactive", "", nil
}

func (m units) Crashes(_ context.Context, unit string) (host.Crash, error) {
	if c, ok := m.Machine.Crashes[unit]; ok {
		c.Line = m.words(c.Line)
		return c, nil
	}
	return host.Crash{Active: "inactive"}, nil
}

func (m units) Loaded(_ context.Context, unit string) (host.Loaded, error) {
	l := m.Machine.Loaded[unit]
	l.Error = config.PlainMessage(l.Error, unit)
	return l, nil
}

func (m units) Boot(context.Context, string) (boot.Boot, error) {
	if m.Machine.Boot == nil {
		return boot.Boot{}, cmp.Or(m.Refuse["boot"], boot.ErrNoSystemd)
	}
	return *m.Machine.Boot, nil
}

func (m units) systemctl(verb string, units ...string) error {
	m.Log = append(m.Log, strings.Join(append([]string{"systemctl", verb}, units...), " "))
	return nil
}

func (m units) Reload(context.Context) error { return m.systemctl("daemon-reload") }
func (m units) Enable(_ context.Context, units ...string) error {
	return m.systemctl("enable", units...)
}
func (m units) Stop(_ context.Context, unit string) error { return m.systemctl("stop", unit) }
func (m units) Restart(_ context.Context, units ...string) error {
	return m.systemctl("restart", units...)
}

type rules struct {
	*Machine
	otherRules
}

func (m rules) Dumps(_ context.Context, read func(string, io.Reader) error) error {
	for _, source := range slices.Sorted(maps.Keys(m.Rules)) {
		if err := read(source, strings.NewReader(m.Rules[source])); err != nil {
			return err
		}
	}
	return nil
}

func (m rules) Packets(context.Context, []byte) ([]byte, error) {
	return []byte(cmp.Or(m.Machine.Packets, "{}")), m.Refuse["packets"]
}

func (m rules) Others(context.Context) (host.Others, error) { return m.Machine.Others, nil }

func (m rules) Takes(_ context.Context, program, _ string, texts []string) ([]string, error) {
	lacks, installed := m.Lacks[program]
	if !installed {
		return nil, fmt.Errorf("%s is not installed", program)
	}
	rejected := make([]string, len(texts))
	for i, text := range texts {
		for _, word := range lacks {
			all, none := strings.CutPrefix(word, "cache ")
			switch word, own := strings.CutPrefix(all, "program "); {
			case !strings.Contains(text, word):
			case none:
				rejected[i] = "Error: cache initialization failed: Invalid argument"
			case own:
				rejected[i] = "Error: syntax error, unexpected string"
			default:
				rejected[i] = "RULE_APPEND failed (No such file or directory)"
			}
		}
	}
	return rejected, nil
}
