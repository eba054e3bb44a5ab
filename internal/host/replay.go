package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strings"

	"nodegate/internal/host/boot"
	"nodegate/internal/host/config"
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

func (r replayFiles) ReadDir(name string) ([]string, error) { return replayed(r.s, r.s.Dirs, name) }
func (r replayFiles) ReadLink(name string) (string, error)  { return replayed(r.s, r.s.SymLink, name) }
func (r replayFiles) Filled(name string) (bool, error)      { return answered(r.s, r.s.Filled[name], name) }
func (r replayFiles) Head(name string) (file.Head, error)   { return replayed(r.s, r.s.Heads, name) }
func (r replayFiles) Space(name string) (Space, error)      { return answered(r.s, r.s.Spaces[name], name) }
func (r replayFiles) Write(string, []byte) error            { return errReplay }

func (r replayFiles) ReadFile(name string) ([]byte, error) {
	text, err := replayed(r.s, r.s.Files, name)
	return []byte(text), err
}

func (r replayFiles) Exists(name string) (bool, error) {
	exists, err := replayed(r.s, r.s.Present, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return exists, err
}

// replayed returns the recorded answer about a file. A name that was not asked for does not exist if a recorded directory lacks it, or
// if a recorded file is in its path.
func replayed[T any](s *Snapshot, answers map[string]answer[T], name string) (T, error) {
	a := answers[name]
	if a.Asked || name != path.Clean(name) || strings.Contains(name, config.Placeholder) {
		return answered(s, a, name)
	}
	for at := name; at != "/" && at != "."; at = path.Dir(at) {
		in, is := s.Dirs[path.Dir(at)]
		missing := is && in.Error == "" && !slices.Contains(in.Value, path.Base(at))
		if f, is := s.Files[path.Dir(at)]; missing || is && f.Error == "" {
			return a.Value, &fs.PathError{Op: "reading", Path: name, Err: fs.ErrNotExist}
		}
	}
	return answered(s, a, name)
}

type replayKernel struct{ s *Snapshot }

func (r replayKernel) Release() (string, error) { return answered(r.s, r.s.Kernel, "kernel release") }
func (r replayKernel) Synchronised() (bool, error) {
	return answered(r.s, r.s.Clock, "state of the clock")
}
func (r replayKernel) LoadModule(context.Context, string, ...string) error { return errReplay }

func (r replayKernel) Version(_ context.Context, program string, flags ...string) (string, error) {
	return answered(r.s, r.s.Version[commandKey(program, flags)], "version of "+program)
}

func (r replayKernel) Complaint(_ context.Context, program string, flags ...string) (string, error) {
	return answered(r.s, r.s.Said[commandKey(program, flags)], "error output of "+program)
}

type replayLinks struct{ s *Snapshot }

func (r replayLinks) List(context.Context) ([]Link, error) { return answered(r.s, r.s.List, "links") }

func (r replayLinks) Get(ctx context.Context, name string) (Link, error) {
	links, err := r.List(ctx)
	if i := slices.IndexFunc(links, func(l Link) bool { return l.Name == name }); i >= 0 {
		return links[i], nil
	}
	return Link{}, linkErr("reading the state", name, cmp.Or(err, fs.ErrNotExist))
}

// Watch fails: a snapshot records a single moment.
func (r replayLinks) Watch(context.Context, func(), chan<- LinkEvent) error {
	return fmt.Errorf("link notifications: %w", r.s.unknown())
}

func (r replayLinks) PodMTUs(context.Context) (map[string]int, error) {
	return answered(r.s, r.s.PodMTUs, "MTU of Pods")
}

func (r replayLinks) DefaultRoutes(context.Context) ([]string, error) {
	return answered(r.s, r.s.Default, "default routes")
}

func (r replayLinks) Addresses(context.Context) ([]netip.Addr, error) {
	return answered(r.s, r.s.IPs, "addresses of the links")
}

func (r replayLinks) Routes(context.Context) ([]Route, error) {
	return answered(r.s, r.s.Routes, "routes")
}

func (r replayLinks) RoutingRules(context.Context) ([]RoutingRule, error) {
	return answered(r.s, r.s.Routing, "routing rules")
}

func (r replayLinks) Lookup(RouteQuery) (RouteAnswer, error) { return RouteAnswer{}, r.s.unknown() }

func (r replayLinks) Encrypts() (bool, error) { return false, r.s.unknown() }

func (r replayLinks) Hops(context.Context) ([]Hop, error) {
	return answered(r.s, r.s.Hops, "gateways of VXLAN links")
}

// Foreign fails: a snapshot does not record it.
func (r replayLinks) Foreign(context.Context) ([]Foreign, error) {
	return nil, fmt.Errorf("routes of other programs: %w", r.s.unknown())
}

func (r replayLinks) Driver(_ context.Context, link string) (string, error) {
	return answered(r.s, r.s.Drivers[link], "driver of "+link)
}

func (r replayLinks) Features(_ context.Context, link string) (map[string]Feature, error) {
	return answered(r.s, r.s.Offload[link], "features of "+link)
}

func (r replayLinks) Set(context.Context, string, string, map[string]string) error { return errReplay }

func (r replayLinks) Tuning(_ context.Context, link, kind string) (map[string]Amount, error) {
	return answered(r.s, r.s.Tuning[kind+" "+link], kind+" of "+link)
}

func (r replayLinks) Stats(_ context.Context, link string) (map[string]uint64, error) {
	return answered(r.s, r.s.Stats[link], "statistics of "+link)
}

type replayRuntimes struct{ s *Snapshot }

func (r replayRuntimes) CRIVersion(_ context.Context, socket, api string) (string, error) {
	return answered(r.s, r.s.Runtime[api+" "+socket], "the runtime at "+socket)
}

func (r replayRuntimes) CgroupDriver(_ context.Context, socket string) (CgroupDriver, error) {
	return answered(r.s, r.s.Cgroups[socket], "the cgroup driver of the runtime at "+socket)
}

func (r replayRuntimes) RuntimeSetup(_ context.Context, socket string) (RuntimeSetup, error) {
	return answered(r.s, r.s.Setups[socket], "the setup of the runtime at "+socket)
}

type replayUnits struct{ s *Snapshot }

func (r replayUnits) State(_ context.Context, unit string) (active, file string, err error) {
	u, err := answered(r.s, r.s.Units[unit], "state of "+unit)
	return u.Active, u.File, err
}

func (r replayUnits) Crashes(_ context.Context, unit string) (Crash, error) {
	return answered(r.s, r.s.Crashes[unit], "exits of "+unit)
}

func (r replayUnits) Loaded(_ context.Context, unit string) (Loaded, error) {
	return answered(r.s, r.s.Loaded[unit], "load state of "+unit)
}

func (r replayUnits) Boot(_ context.Context, unit string) (boot.Boot, error) {
	return answered(r.s, r.s.Boot[unit], "the boot with "+unit)
}

func (r replayUnits) Reload(context.Context) error             { return errReplay }
func (r replayUnits) Enable(context.Context, ...string) error  { return errReplay }
func (r replayUnits) Stop(context.Context, string) error       { return errReplay }
func (r replayUnits) Restart(context.Context, ...string) error { return errReplay }

type replayRules struct{ s *Snapshot }

func (r replayRules) Dumps(_ context.Context, read func(string, io.Reader) error) error {
	if _, err := answered(r.s, r.s.RuleErr, "packet filter rules"); err != nil {
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
	tables, err := answered(r.s, r.s.Foreign, "nft tables of other programs")
	return slices.DeleteFunc(tables, func(t *ruleset.NFTTable) bool { return t == nil }), err
}

func (r replayRules) Others(context.Context) (Others, error) {
	return answered(r.s, r.s.Others, "rules of other programs")
}

func (r replayRules) Takes(_ context.Context, program, _ string, texts []string) ([]string, error) {
	rejected := make([]string, len(texts))
	for i, text := range texts {
		var err error
		if rejected[i], err = answered(r.s, r.s.Tried[commandKey(program, []string{text})], "rules of "+program); err != nil {
			return nil, err
		}
	}
	return rejected, nil
}

// commandKey returns the key of a rule or a command line in a snapshot.
func commandKey(program string, rule []string) string {
	return strings.Join(append([]string{program}, rule...), " ")
}
