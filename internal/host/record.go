package host

import (
	"bytes"
	"context"
	"io"
	"slices"
	"time"
)

// Record returns a host that passes every question on to h, and the snapshot that
// fills up with the answers. Changes are passed on and not recorded.
func Record(h *Host) (*Host, *Snapshot) {
	s := &Snapshot{
		APIVersion: snapshotVersion, Kind: snapshotKind, Taken: time.Now().UTC().Truncate(time.Second), Root: h.Root,
		Files: map[string]answer[text]{}, Dirs: map[string]answer[[]string]{}, SymLink: map[string]answer[string]{},
		Present: map[string]answer[bool]{}, Runtime: map[string]answer[string]{},
		Spaces: map[string]answer[Space]{}, Cgroups: map[string]answer[CgroupDriver]{}, Crashes: map[string]answer[Crash]{},
		Drivers: map[string]answer[string]{}, Offload: map[string]answer[featureOf]{},
		Version: map[string]answer[string]{}, Stats: map[string]answer[statsOf]{}, Units: map[string]answer[unitState]{},
		Tried: map[string]answer[string]{},
	}
	return &Host{
		Root: h.Root, Files: recordFiles{h.Files, s}, Kernel: recordKernel{h.Kernel, s}, Links: recordLinks{h.Links, s},
		Units: recordUnits{h.Units, s}, Rules: recordRules{h.Rules, s}, Runtimes: recordRuntimes{h.Runtimes, s},
	}, s
}

type recordFiles struct {
	Files
	s *Snapshot
}

func (r recordFiles) ReadFile(name string) ([]byte, error) {
	b, err := r.Files.ReadFile(name)
	r.s.Files[name] = recordAnswer(text(b), err)
	return b, err
}

func (r recordFiles) ReadDir(name string) ([]string, error) {
	names, err := r.Files.ReadDir(name)
	r.s.Dirs[name] = recordAnswer(names, err)
	return names, err
}

func (r recordFiles) Exists(name string) (bool, error) {
	v, err := r.Files.Exists(name)
	r.s.Present[name] = recordAnswer(v, err)
	return v, err
}

func (r recordFiles) Tail(name string) ([]byte, error) {
	b, err := r.Files.Tail(name)
	r.s.Files[name] = recordAnswer(text(b), err)
	return b, err
}

func (r recordFiles) ReadLink(name string) (string, error) {
	to, err := r.Files.ReadLink(name)
	r.s.SymLink[name] = recordAnswer(to, err)
	return to, err
}

func (r recordFiles) Space(name string) (Space, error) {
	s, err := r.Files.Space(name)
	r.s.Spaces[name] = recordAnswer(s, err)
	return s, err
}

type recordKernel struct {
	Kernel
	s *Snapshot
}

func (r recordKernel) Release() (string, error) {
	v, err := r.Kernel.Release()
	r.s.Kernel = recordAnswer(v, err)
	return v, err
}

func (r recordKernel) Synchronised() (bool, error) {
	v, err := r.Kernel.Synchronised()
	r.s.Clock = recordAnswer(v, err)
	return v, err
}

func (r recordKernel) Version(ctx context.Context, program string, flags ...string) (string, error) {
	v, err := r.Kernel.Version(ctx, program, flags...)
	r.s.Version[tried(program, flags)] = recordAnswer(v, err)
	return v, err
}

type recordLinks struct {
	Links
	s *Snapshot
}

func (r recordLinks) List(ctx context.Context) ([]Link, error) {
	v, err := r.Links.List(ctx)
	r.s.List = recordAnswer(slices.Clone(v), err)
	return v, err
}

func (r recordLinks) DefaultRoutes(ctx context.Context) ([]string, error) {
	v, err := r.Links.DefaultRoutes(ctx)
	r.s.Default = recordAnswer(v, err)
	return v, err
}

func (r recordLinks) RoutingRules(ctx context.Context) ([]RoutingRule, error) {
	v, err := r.Links.RoutingRules(ctx)
	r.s.Routing = recordAnswer(v, err)
	return v, err
}

func (r recordLinks) Hops(ctx context.Context) ([]Hop, error) {
	v, err := r.Links.Hops(ctx)
	r.s.Hops = recordAnswer(v, err)
	return v, err
}

func (r recordLinks) Driver(ctx context.Context, link string) (string, error) {
	v, err := r.Links.Driver(ctx, link)
	r.s.Drivers[link] = recordAnswer(v, err)
	return v, err
}

func (r recordLinks) Features(ctx context.Context, link string) (map[string]Feature, error) {
	v, err := r.Links.Features(ctx, link)
	r.s.Offload[link] = recordAnswer(v, err)
	return v, err
}

func (r recordLinks) Stats(ctx context.Context, link string) (map[string]uint64, error) {
	v, err := r.Links.Stats(ctx, link)
	r.s.Stats[link] = recordAnswer(v, err)
	return v, err
}

type recordRuntimes struct {
	Runtimes
	s *Snapshot
}

func (r recordRuntimes) CRIVersion(ctx context.Context, socket, api string) (string, error) {
	v, err := r.Runtimes.CRIVersion(ctx, socket, api)
	r.s.Runtime[api+" "+socket] = recordAnswer(v, err)
	return v, err
}

func (r recordRuntimes) CgroupDriver(ctx context.Context, socket string) (CgroupDriver, error) {
	v, err := r.Runtimes.CgroupDriver(ctx, socket)
	r.s.Cgroups[socket] = recordAnswer(v, err)
	return v, err
}

type recordUnits struct {
	Units
	s *Snapshot
}

func (r recordUnits) State(ctx context.Context, unit string) (active, file string, err error) {
	active, file, err = r.Units.State(ctx, unit)
	r.s.Units[unit] = recordAnswer(unitState{active, file}, err)
	return active, file, err
}

func (r recordUnits) Crashes(ctx context.Context, unit string) (Crash, error) {
	c, err := r.Units.Crashes(ctx, unit)
	r.s.Crashes[unit] = recordAnswer(c, err)
	return c, err
}

type recordRules struct {
	Rules
	s *Snapshot
}

func (r recordRules) Dumps(ctx context.Context, read func(string, io.Reader) error) error {
	r.s.Rules = nil
	err := r.Rules.Dumps(ctx, func(source string, dump io.Reader) error {
		text, err := io.ReadAll(dump)
		if err != nil {
			return err
		}
		r.s.Rules = append(r.s.Rules, ruleDump{source, string(text)})
		return read(source, bytes.NewReader(text))
	})
	r.s.RuleErr = recordAnswer(true, err)
	return err
}

func (r recordRules) Others(ctx context.Context) (Others, error) {
	v, err := r.Rules.Others(ctx)
	r.s.Others = recordAnswer(v, err)
	return v, err
}

func (r recordRules) Accepts(ctx context.Context, program string, rule ...string) (rejected string, err error) {
	rejected, err = r.Rules.Accepts(ctx, program, rule...)
	r.s.Tried[tried(program, rule)] = recordAnswer(rejected, err)
	return rejected, err
}

func (r recordRules) Takes(ctx context.Context, program, whole string, texts []string) ([]string, error) {
	rejected, err := r.Rules.Takes(ctx, program, whole, texts)
	for i, text := range texts {
		why := ""
		if err == nil {
			why = rejected[i]
		}
		r.s.Tried[tried(program, []string{text})] = recordAnswer(why, err)
	}
	return rejected, err
}
