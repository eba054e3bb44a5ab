package host

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	"nodegate/internal/host/boot"
	"nodegate/internal/host/file"
	"nodegate/internal/ruleset"
)

// Replay returns the host that a snapshot was taken from, in its recorded state. It rejects all
// changes.
func Replay(s *Snapshot) *Host {
	h := &Host{
		Root: s.Root, Files: replayFiles{s}, Kernel: replayKernel{s}, Links: replayLinks{s}, Units: replayUnits{s}, Rules: replayRules{s},
	}
	if h.Live() { // a file tree has no runtimes
		h.Runtimes = replayRuntimes{s}
	}
	return h
}

type replayFiles struct{ s *Snapshot }

func (r replayFiles) ReadFile(name string) ([]byte, error)  { return r.s.Files[name].get(name) }
func (r replayFiles) ReadDir(name string) ([]string, error) { return r.s.Dirs[name].get(name) }
func (r replayFiles) Tail(name string) ([]byte, error)      { return r.ReadFile(name) }
func (r replayFiles) ReadLink(name string) (string, error)  { return r.s.SymLink[name].get(name) }
func (r replayFiles) Exists(name string) (bool, error)      { return r.s.Present[name].get(name) }
func (r replayFiles) Filled(name string) (bool, error)      { return r.s.Filled[name].get(name) }
func (r replayFiles) Head(name string) (file.Head, error)   { return r.s.Heads[name].get(name) }
func (r replayFiles) Space(name string) (Space, error)      { return r.s.Spaces[name].get(name) }
func (r replayFiles) Write(string, []byte) error            { return errReplay }

type replayKernel struct{ s *Snapshot }

func (r replayKernel) Release() (string, error)                            { return r.s.Kernel.get("kernel release") }
func (r replayKernel) Synchronised() (bool, error)                         { return r.s.Clock.get("state of the clock") }
func (r replayKernel) LoadModule(context.Context, string, ...string) error { return errReplay }

func (r replayKernel) Version(_ context.Context, program string, flags ...string) (string, error) {
	return r.s.Version[commandKey(program, flags)].get("version of " + program)
}

func (r replayKernel) Complaint(_ context.Context, program string, flags ...string) (string, error) {
	return r.s.Said[commandKey(program, flags)].get("error output of " + program)
}

type replayLinks struct{ s *Snapshot }

func (r replayLinks) List(context.Context) ([]Link, error) { return r.s.List.get("links") }

func (r replayLinks) Get(ctx context.Context, name string) (Link, error) {
	links, err := r.List(ctx)
	if i := slices.IndexFunc(links, func(l Link) bool { return l.Name == name }); i >= 0 {
		return links[i], nil
	}
	return Link{}, linkErr("reading the state", name, cmp.Or(err, fs.ErrNotExist))
}

// Watch fails: a snapshot records a single moment.
func (r replayLinks) Watch(context.Context, func(), chan<- LinkEvent) error {
	return fmt.Errorf("link notifications: %w", ErrNotRecorded)
}

func (r replayLinks) PodMTUs(context.Context) (map[string]int, error) {
	return r.s.PodMTUs.get("MTU of Pods")
}

func (r replayLinks) DefaultRoutes(context.Context) ([]string, error) {
	return r.s.Default.get("default routes")
}

func (r replayLinks) Addresses(context.Context) ([]netip.Addr, error) {
	return r.s.IPs.get("addresses of the links")
}

func (r replayLinks) Routes(context.Context) ([]Route, error) { return r.s.Routes.get("routes") }

func (r replayLinks) RoutingRules(context.Context) ([]RoutingRule, error) {
	return r.s.Routing.get("routing rules")
}

func (r replayLinks) Lookup(RouteQuery) (RouteAnswer, error) { return RouteAnswer{}, ErrNotRecorded }

func (r replayLinks) Encrypts() (bool, error) { return false, ErrNotRecorded }

func (r replayLinks) Hops(context.Context) ([]Hop, error) {
	return r.s.Hops.get("gateways of VXLAN links")
}

// Foreign fails: a snapshot does not record it.
func (r replayLinks) Foreign(context.Context) ([]Foreign, error) {
	return nil, fmt.Errorf("routes of other programs: %w", ErrNotRecorded)
}

func (r replayLinks) Driver(_ context.Context, link string) (string, error) {
	return r.s.Drivers[link].get("driver of " + link)
}

func (r replayLinks) Features(_ context.Context, link string) (map[string]Feature, error) {
	return r.s.Offload[link].get("features of " + link)
}

func (r replayLinks) Set(context.Context, string, string, map[string]string) error { return errReplay }

func (r replayLinks) Tuning(_ context.Context, link, kind string) (map[string]Amount, error) {
	return r.s.Tuning[kind+" "+link].get(kind + " of " + link)
}

func (r replayLinks) Stats(_ context.Context, link string) (map[string]uint64, error) {
	return r.s.Stats[link].get("statistics of " + link)
}

type replayRuntimes struct{ s *Snapshot }

func (r replayRuntimes) CRIVersion(_ context.Context, socket, api string) (string, error) {
	return r.s.Runtime[api+" "+socket].get("the runtime at " + socket)
}

func (r replayRuntimes) CgroupDriver(_ context.Context, socket string) (CgroupDriver, error) {
	return r.s.Cgroups[socket].get("the cgroup driver of the runtime at " + socket)
}

func (r replayRuntimes) RuntimeSetup(_ context.Context, socket string) (RuntimeSetup, error) {
	return r.s.Setups[socket].get("the setup of the runtime at " + socket)
}

type replayUnits struct{ s *Snapshot }

func (r replayUnits) State(_ context.Context, unit string) (active, file string, err error) {
	u, err := r.s.Units[unit].get("state of " + unit)
	return u.Active, u.File, err
}

func (r replayUnits) Crashes(_ context.Context, unit string) (Crash, error) {
	return r.s.Crashes[unit].get("exits of " + unit)
}

func (r replayUnits) Loaded(_ context.Context, unit string) (Loaded, error) {
	return r.s.Loaded[unit].get("load state of " + unit)
}

func (r replayUnits) Boot(_ context.Context, unit string) (boot.Boot, error) {
	return r.s.Boot[unit].get("the boot with " + unit)
}

func (r replayUnits) Reload(context.Context) error             { return errReplay }
func (r replayUnits) Enable(context.Context, ...string) error  { return errReplay }
func (r replayUnits) Stop(context.Context, string) error       { return errReplay }
func (r replayUnits) Restart(context.Context, ...string) error { return errReplay }

type replayRules struct{ s *Snapshot }

func (r replayRules) Dumps(_ context.Context, read func(string, io.Reader) error) error {
	if _, err := r.s.RuleErr.get("packet filter rules"); err != nil {
		return err
	}
	for _, d := range r.s.Rules {
		if err := read(d.Source, strings.NewReader(d.Text)); err != nil {
			return err
		}
	}
	return nil
}

func (r replayRules) ForeignTables(context.Context) ([]*ruleset.NFTTable, error) {
	tables, err := r.s.Foreign.get("nft tables of other programs")
	return slices.DeleteFunc(tables, func(t *ruleset.NFTTable) bool { return t == nil }), err
}

func (r replayRules) Others(context.Context) (Others, error) {
	return r.s.Others.get("rules of other programs")
}

func (r replayRules) Accepts(_ context.Context, program string, rule ...string) (rejected string, err error) {
	what := commandKey(program, rule)
	return r.s.Tried[what].get(what)
}

func (r replayRules) Takes(_ context.Context, program, _ string, texts []string) ([]string, error) {
	rejected := make([]string, len(texts))
	for i, text := range texts {
		var err error
		if rejected[i], err = r.s.Tried[commandKey(program, []string{text})].get("rules of " + program); err != nil {
			return nil, err
		}
	}
	return rejected, nil
}

// commandKey returns the key of a rule or a command line in a snapshot.
func commandKey(program string, rule []string) string {
	return strings.Join(append([]string{program}, rule...), " ")
}
