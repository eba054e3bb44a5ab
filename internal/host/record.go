package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"nodegate/internal/host/boot"
	"nodegate/internal/host/config"
	"nodegate/internal/host/file"
	"nodegate/internal/ruleset"
)

// Record returns a host that passes every query on to h, and the snapshot that records the answers.
// Changes are passed on but not recorded.
func Record(h *Host) (*Host, *Snapshot) {
	s := &Snapshot{
		APIVersion: snapshotVersion, Kind: snapshotKind, Taken: time.Now().UTC().Truncate(time.Second), Root: h.Root,
		hidden: new(config.Filter),
	}
	if files, is := h.Files.(shownFiles); is {
		s.hidden = files.filter
	}
	recording := &Host{
		Root: h.Root, Files: recordFiles{Files: h.Files, s: s}, Kernel: recordKernel{h.Kernel, s}, Links: recordLinks{h.Links, s},
		Units: recordUnits{h.Units, s}, Rules: recordRules{h.Rules, s},
	}
	if h.Runtimes != nil {
		recording.Runtimes = recordRuntimes{h.Runtimes, s}
	}
	return recording, s
}

// record returns a function that stores the answer to a query under its name and passes it on.
func record[T any](s *Snapshot, answers *map[string]answer[T], question string) func(T, error) (T, error) {
	return func(v T, err error) (T, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if *answers == nil {
			*answers = map[string]answer[T]{}
		}
		(*answers)[question] = recordAnswer(v, err)
		return v, err
	}
}

// recordOnly returns a function that stores the answer to the only query of its kind and passes it
// on.
func recordOnly[T any](s *Snapshot, to *answer[T]) func(T, error) (T, error) {
	return func(v T, err error) (T, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		*to = recordAnswer(v, err)
		return v, err
	}
}

// recordFiles passes on what a snapshot holds of each file, not the file: the checks on the
// recording and on its replay then have the same results.
type recordFiles struct {
	Files
	s    *Snapshot
	kind config.Kind
}

// As returns files whose content is of a kind.
func (r recordFiles) As(kind config.Kind) config.Files {
	r.kind = kind
	if files, is := config.As(r.Files, kind).(Files); is {
		r.Files = files
	}
	return r
}

func (r recordFiles) ReadFile(name string) ([]byte, error) {
	found, err := r.Files.ReadFile(r.s.hidden.Reveal(name))
	return r.disclose(name, found, err)
}

// disclose records what the snapshot holds of a file, in UTF-8 for JSON, and returns it.
func (r recordFiles) disclose(name string, found []byte, err error) ([]byte, error) {
	shown := ""
	switch {
	case err != nil:
		err = named(name, err)
	case bytes.HasPrefix(found, []byte("#!")) && r.kind == config.ByPath:
		err = errors.New("a snapshot does not hold scripts")
	default:
		shown = strings.ToValidUTF8(string(r.s.hidden.Show(r.kind, name, config.NewText(0o444, found), true)), "\uFFFD")
	}
	shown, err = record(r.s, &r.s.Files, name)(shown, err)
	return []byte(shown), err
}

func (r recordFiles) ReadDir(name string) ([]string, error) {
	found, err := r.Files.ReadDir(r.s.hidden.Reveal(name))
	return record(r.s, &r.s.Dirs, name)(found, named(name, err))
}

func (r recordFiles) Exists(name string) (bool, error) {
	found, err := r.Files.Exists(r.s.hidden.Reveal(name))
	return record(r.s, &r.s.Present, name)(found, named(name, err))
}

func (r recordFiles) Filled(name string) (bool, error) {
	return record(r.s, &r.s.Filled, name)(r.Files.Filled(name))
}

// ReadLink records only those open files of a process that are sockets.
func (r recordFiles) ReadLink(name string) (string, error) {
	to, err := r.Files.ReadLink(r.s.hidden.Reveal(name))
	if openFile().MatchString(name) && !strings.HasPrefix(to, "socket:[") {
		to = ""
	}
	return record(r.s, &r.s.SymLink, name)(to, named(name, err))
}

func openFile() *regexp.Regexp { return regexp.MustCompile(`^/proc/[^/]+/fd/`) }

// Head records of a file's beginning only the header of an ELF program or the interpreter of a script.
func (r recordFiles) Head(name string) (file.Head, error) {
	found, err := r.Files.Head(r.s.hidden.Reveal(name))
	found.Start = executableHeader(found.Start)
	return record(r.s, &r.s.Heads, name)(found, named(name, err))
}

// executableHeader returns the part of a file's beginning that names the program or processor that can execute it. Any
// other content is replaced by a space, which still differs from an empty file.
func executableHeader(start []byte) []byte {
	const elfIdentity = 20 // through e_machine
	switch {
	case bytes.HasPrefix(start, []byte("\x7fELF")):
		return start[:min(len(start), elfIdentity)]
	case bytes.HasPrefix(start, []byte("#!")):
		interpreter, _, _ := bytes.Cut(start[len("#!"):], []byte("\n"))
		if words := bytes.Fields(interpreter); len(words) > 0 {
			return append([]byte("#!"), words[0]...)
		}
	}
	return []byte(" ")[:min(len(start), 1)]
}

func (r recordFiles) Space(name string) (Space, error) {
	found, err := r.Files.Space(r.s.hidden.Reveal(name))
	return record(r.s, &r.s.Spaces, name)(found, named(name, err))
}

type recordKernel struct {
	Kernel
	s *Snapshot
}

func (r recordKernel) Release() (string, error) {
	return recordOnly(r.s, &r.s.Kernel)(r.Kernel.Release())
}

func (r recordKernel) Synchronised() (bool, error) {
	return recordOnly(r.s, &r.s.Clock)(r.Kernel.Synchronised())
}

func (r recordKernel) Version(ctx context.Context, program string, flags ...string) (string, error) {
	said, err := r.Kernel.Version(ctx, r.s.hidden.Reveal(program), machineKernel{r.s.hidden}.revealed(flags)...)
	return record(r.s, &r.s.Version, commandKey(program, flags))(said, err)
}

func (r recordKernel) Complaint(ctx context.Context, program string, flags ...string) (string, error) {
	said, err := r.Kernel.Complaint(ctx, r.s.hidden.Reveal(program), machineKernel{r.s.hidden}.revealed(flags)...)
	return record(r.s, &r.s.Said, commandKey(program, flags))(config.PlainMessage(said, program), err)
}

type recordLinks struct {
	Links
	s *Snapshot
}

func (r recordLinks) List(ctx context.Context) ([]Link, error) {
	v, err := recordOnly(r.s, &r.s.List)(r.Links.List(ctx))
	return slices.Clone(v), err
}

func (r recordLinks) PodMTUs(ctx context.Context) (map[string]int, error) {
	return recordOnly(r.s, &r.s.PodMTUs)(r.Links.PodMTUs(ctx))
}

func (r recordLinks) DefaultRoutes(ctx context.Context) ([]string, error) {
	return recordOnly(r.s, &r.s.Default)(r.Links.DefaultRoutes(ctx))
}

func (r recordLinks) Addresses(ctx context.Context) ([]netip.Addr, error) {
	return recordOnly(r.s, &r.s.IPs)(r.Links.Addresses(ctx))
}

func (r recordLinks) Routes(ctx context.Context) ([]Route, error) {
	return recordOnly(r.s, &r.s.Routes)(r.Links.Routes(ctx))
}

func (r recordLinks) RoutingRules(ctx context.Context) ([]RoutingRule, error) {
	return recordOnly(r.s, &r.s.Routing)(r.Links.RoutingRules(ctx))
}

func (r recordLinks) Hops(ctx context.Context) ([]Hop, error) {
	return recordOnly(r.s, &r.s.Hops)(r.Links.Hops(ctx))
}

func (r recordLinks) Driver(ctx context.Context, link string) (string, error) {
	return record(r.s, &r.s.Drivers, link)(r.Links.Driver(ctx, link))
}

func (r recordLinks) Features(ctx context.Context, link string) (map[string]Feature, error) {
	return record(r.s, &r.s.Offload, link)(r.Links.Features(ctx, link))
}

func (r recordLinks) Tuning(ctx context.Context, link, kind string) (map[string]Amount, error) {
	return record(r.s, &r.s.Tuning, kind+" "+link)(r.Links.Tuning(ctx, link, kind))
}

func (r recordLinks) Stats(ctx context.Context, link string) (map[string]uint64, error) {
	return record(r.s, &r.s.Stats, link)(r.Links.Stats(ctx, link))
}

type recordRuntimes struct {
	Runtimes
	s *Snapshot
}

func (r recordRuntimes) CRIVersion(ctx context.Context, socket, api string) (string, error) {
	return record(r.s, &r.s.Runtime, api+" "+socket)(r.Runtimes.CRIVersion(ctx, r.s.hidden.Reveal(socket), api))
}

func (r recordRuntimes) CgroupDriver(ctx context.Context, socket string) (CgroupDriver, error) {
	return record(r.s, &r.s.Cgroups, socket)(r.Runtimes.CgroupDriver(ctx, r.s.hidden.Reveal(socket)))
}

func (r recordRuntimes) RuntimeSetup(ctx context.Context, socket string) (RuntimeSetup, error) {
	return record(r.s, &r.s.Setups, socket)(r.Runtimes.RuntimeSetup(ctx, r.s.hidden.Reveal(socket)))
}

type recordUnits struct {
	Units
	s *Snapshot
}

func (r recordUnits) State(ctx context.Context, unit string) (active, file string, err error) {
	active, file, err = r.Units.State(ctx, unit)
	u, err := record(r.s, &r.s.Units, unit)(unitState{active, file}, err)
	return u.Active, u.File, err
}

func (r recordUnits) Crashes(ctx context.Context, unit string) (Crash, error) {
	c, err := r.Units.Crashes(ctx, unit)
	c.Line = config.PlainMessage(c.Line) // a recording leaves its machine
	return record(r.s, &r.s.Crashes, unit)(c, err)
}

func (r recordUnits) Loaded(ctx context.Context, unit string) (Loaded, error) {
	return record(r.s, &r.s.Loaded, unit)(r.Units.Loaded(ctx, unit))
}

func (r recordUnits) Boot(ctx context.Context, unit string) (boot.Boot, error) {
	return record(r.s, &r.s.Boot, unit)(r.Units.Boot(ctx, unit))
}

type recordRules struct {
	Rules
	s *Snapshot
}

func (r recordRules) Dumps(ctx context.Context, read func(string, io.Reader) error) error {
	r.s.Rules = nil
	err := r.Rules.Dumps(ctx, func(source string, dump io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(dump, maxFile+1))
		if err == nil && len(text) > maxFile {
			err = fmt.Errorf("%s prints more than %d MiB of rules, the limit of a snapshot", source, maxFile>>20)
		}
		if err != nil {
			return err
		}
		plain := config.PlainRules(string(text))
		r.s.Rules = append(r.s.Rules, ruleDump{source, plain})
		return read(source, strings.NewReader(plain))
	})
	_, err = recordOnly(r.s, &r.s.RuleErr)(true, err)
	return err
}

func (r recordRules) ForeignTables(ctx context.Context) ([]*ruleset.NFTTable, error) {
	tables, err := r.Rules.ForeignTables(ctx)
	for _, t := range tables {
		for _, set := range t.Sets {
			for i := range set.Elements {
				set.Elements[i].Comment = ""
			}
		}
	}
	return recordOnly(r.s, &r.s.Foreign)(tables, err)
}

func (r recordRules) Others(ctx context.Context) (Others, error) {
	return recordOnly(r.s, &r.s.Others)(r.Rules.Others(ctx))
}

func (r recordRules) Takes(ctx context.Context, program, whole string, texts []string) ([]string, error) {
	rejected, err := r.Rules.Takes(ctx, program, whole, texts)
	for i, text := range texts {
		why := ""
		if err == nil {
			why = rejected[i]
		}
		_, _ = record(r.s, &r.s.Tried, commandKey(program, []string{text}))(why, err)
	}
	return rejected, err
}
