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

// note keeps the answer to one of many questions of a kind.
func note[T any](s *Snapshot, answers map[string]answer[T], question string, v T, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answers[question] = recordAnswer(v, err)
}

// noteOne keeps the answer to the only question of a kind.
func noteOne[T any](s *Snapshot, to *answer[T], v T, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*to = recordAnswer(v, err)
}

type recordFiles struct {
	Files
	s *Snapshot
}

func (r recordFiles) ReadFile(name string) ([]byte, error) {
	b, err := r.Files.ReadFile(name)
	note(r.s, r.s.Files, name, text(b), err)
	return b, err
}

func (r recordFiles) ReadDir(name string) ([]string, error) {
	names, err := r.Files.ReadDir(name)
	note(r.s, r.s.Dirs, name, names, err)
	return names, err
}

func (r recordFiles) Exists(name string) (bool, error) {
	v, err := r.Files.Exists(name)
	note(r.s, r.s.Present, name, v, err)
	return v, err
}

func (r recordFiles) Tail(name string) ([]byte, error) {
	b, err := r.Files.Tail(name)
	note(r.s, r.s.Files, name, text(b), err)
	return b, err
}

func (r recordFiles) ReadLink(name string) (string, error) {
	to, err := r.Files.ReadLink(name)
	note(r.s, r.s.SymLink, name, to, err)
	return to, err
}

func (r recordFiles) Space(name string) (Space, error) {
	s, err := r.Files.Space(name)
	note(r.s, r.s.Spaces, name, s, err)
	return s, err
}

type recordKernel struct {
	Kernel
	s *Snapshot
}

func (r recordKernel) Release() (string, error) {
	v, err := r.Kernel.Release()
	noteOne(r.s, &r.s.Kernel, v, err)
	return v, err
}

func (r recordKernel) Synchronised() (bool, error) {
	v, err := r.Kernel.Synchronised()
	noteOne(r.s, &r.s.Clock, v, err)
	return v, err
}

func (r recordKernel) Version(ctx context.Context, program string, flags ...string) (string, error) {
	v, err := r.Kernel.Version(ctx, program, flags...)
	note(r.s, r.s.Version, tried(program, flags), v, err)
	return v, err
}

type recordLinks struct {
	Links
	s *Snapshot
}

func (r recordLinks) List(ctx context.Context) ([]Link, error) {
	v, err := r.Links.List(ctx)
	noteOne(r.s, &r.s.List, slices.Clone(v), err)
	return v, err
}

func (r recordLinks) DefaultRoutes(ctx context.Context) ([]string, error) {
	v, err := r.Links.DefaultRoutes(ctx)
	noteOne(r.s, &r.s.Default, v, err)
	return v, err
}

func (r recordLinks) RoutingRules(ctx context.Context) ([]RoutingRule, error) {
	v, err := r.Links.RoutingRules(ctx)
	noteOne(r.s, &r.s.Routing, v, err)
	return v, err
}

func (r recordLinks) Hops(ctx context.Context) ([]Hop, error) {
	v, err := r.Links.Hops(ctx)
	noteOne(r.s, &r.s.Hops, v, err)
	return v, err
}

func (r recordLinks) Driver(ctx context.Context, link string) (string, error) {
	v, err := r.Links.Driver(ctx, link)
	note(r.s, r.s.Drivers, link, v, err)
	return v, err
}

func (r recordLinks) Features(ctx context.Context, link string) (map[string]Feature, error) {
	v, err := r.Links.Features(ctx, link)
	note(r.s, r.s.Offload, link, v, err)
	return v, err
}

func (r recordLinks) Stats(ctx context.Context, link string) (map[string]uint64, error) {
	v, err := r.Links.Stats(ctx, link)
	note(r.s, r.s.Stats, link, v, err)
	return v, err
}

type recordRuntimes struct {
	Runtimes
	s *Snapshot
}

func (r recordRuntimes) CRIVersion(ctx context.Context, socket, api string) (string, error) {
	v, err := r.Runtimes.CRIVersion(ctx, socket, api)
	note(r.s, r.s.Runtime, api+" "+socket, v, err)
	return v, err
}

func (r recordRuntimes) CgroupDriver(ctx context.Context, socket string) (CgroupDriver, error) {
	v, err := r.Runtimes.CgroupDriver(ctx, socket)
	note(r.s, r.s.Cgroups, socket, v, err)
	return v, err
}

type recordUnits struct {
	Units
	s *Snapshot
}

func (r recordUnits) State(ctx context.Context, unit string) (active, file string, err error) {
	active, file, err = r.Units.State(ctx, unit)
	note(r.s, r.s.Units, unit, unitState{active, file}, err)
	return active, file, err
}

func (r recordUnits) Crashes(ctx context.Context, unit string) (Crash, error) {
	c, err := r.Units.Crashes(ctx, unit)
	note(r.s, r.s.Crashes, unit, c, err)
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
	noteOne(r.s, &r.s.RuleErr, true, err)
	return err
}

func (r recordRules) Others(ctx context.Context) (Others, error) {
	v, err := r.Rules.Others(ctx)
	noteOne(r.s, &r.s.Others, v, err)
	return v, err
}

func (r recordRules) Accepts(ctx context.Context, program string, rule ...string) (rejected string, err error) {
	rejected, err = r.Rules.Accepts(ctx, program, rule...)
	note(r.s, r.s.Tried, tried(program, rule), rejected, err)
	return rejected, err
}

func (r recordRules) Takes(ctx context.Context, program, whole string, texts []string) ([]string, error) {
	rejected, err := r.Rules.Takes(ctx, program, whole, texts)
	for i, text := range texts {
		why := ""
		if err == nil {
			why = rejected[i]
		}
		note(r.s, r.s.Tried, tried(program, []string{text}), why, err)
	}
	return rejected, err
}
