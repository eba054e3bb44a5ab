package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"nodegate/internal/host/config"
)

// Once returns a host for one run of the checks, which may run concurrently: it asks each question at most once. A host that Once,
// Record or Replay made is returned as it is.
func Once(h *Host) *Host {
	if h.memo.Snapshot != nil {
		return h
	}
	return asking(h, *h, memo{Snapshot: &Snapshot{}, derived: &Snapshot{}})
}

// Again returns a host that asks every question again, and may get another answer.
func (h *Host) Again() *Host {
	switch {
	case h.asked == nil || h.memo.absent != nil:
		return h
	case h.memo.keeps:
		again, source := h.memo, Once(h.asked.asked)
		again.again = true
		return asking(source, *source, again)
	}
	return Once(h.asked)
}

// Record returns a host that asks h, and the snapshot that records the answers. Changes are passed on but not recorded.
func Record(h *Host) (*Host, *Snapshot) {
	s := &Snapshot{
		APIVersion: snapshotVersion, Kind: snapshotKind, Form: snapshotForm, Taken: time.Now().UTC().Truncate(time.Second), Root: h.Root,
	}
	source := Once(&Host{Root: h.Root, Files: h.Files, Kernel: h.Kernel, Links: h.Links, Units: h.Units, Rules: h.Rules, Runtimes: h.Runtimes})
	return asking(source, *source, memo{Snapshot: s, keeps: true, written: new(config.Withheld)}), s
}

// Replay returns the host that a snapshot was taken from, in its recorded state. It rejects all changes.
func Replay(s *Snapshot) *Host {
	m := memo{Snapshot: s, derived: &Snapshot{}, absent: ErrNotRecorded}
	h := Host{Root: s.Root, Files: frozenFiles{}, Kernel: frozenKernel{}, Links: frozenLinks{m: m}, Units: frozenUnits{}, Rules: askedRules{}}
	if h.Live() { // a file tree has no runtimes
		h.Runtimes = askedRuntimes{}
	}
	return asking(nil, h, m)
}

// asking makes a copy of a host ask through a memo.
func asking(of *Host, h Host, m memo) *Host {
	h.opened = nil // of closes them
	h.asked, h.memo = of, m
	h.Files, h.Kernel, h.Links = askedFiles{h.Files, m}, askedKernel{h.Kernel, m}, askedLinks{h.Links, m}
	h.Units, h.Rules = askedUnits{h.Units, m}, askedRules{h.Rules, m}
	if h.Runtimes != nil {
		h.Runtimes = askedRuntimes{h.Runtimes, m}
	}
	return &h
}

// errReplay is the error of every attempt to change a replayed host, or the kernel of a file tree.
var errReplay = errors.New("a snapshot, or a file tree without a kernel, cannot be changed")

// The frozen parts of a host reject changes, and answer what is not asked through a memo.
type (
	frozenFiles  struct{ Files }
	frozenKernel struct{ Kernel }
	frozenUnits  struct{ Units }
	frozenLinks  struct {
		Links
		m memo
	}
)

func (frozenFiles) Write(string, []byte) error                           { return errReplay }
func (frozenKernel) LoadModule(context.Context, string, ...string) error { return errReplay }

func (frozenUnits) Reload(context.Context) error             { return errReplay }
func (frozenUnits) Enable(context.Context, ...string) error  { return errReplay }
func (frozenUnits) Stop(context.Context, string) error       { return errReplay }
func (frozenUnits) Restart(context.Context, ...string) error { return errReplay }

func (frozenLinks) Set(context.Context, string, string, map[string]string) error { return errReplay }

func (f frozenLinks) Get(ctx context.Context, name string) (Link, error) {
	links, err := askedLinks{f, f.m}.List(ctx)
	if i := slices.IndexFunc(links, func(l Link) bool { return l.Name == name }); i >= 0 {
		return links[i], nil
	}
	return Link{}, linkErr("reading the state", name, cmp.Or(err, fs.ErrNotExist))
}

// Watch fails: a snapshot records a single moment.
func (f frozenLinks) Watch(context.Context, func(), chan<- LinkEvent) error {
	return fmt.Errorf("link notifications: %w", f.m.absent)
}

// Foreign fails: a snapshot does not record it.
func (f frozenLinks) Foreign(context.Context) ([]Foreign, error) {
	return nil, fmt.Errorf("routes of other programs: %w", f.m.absent)
}
