package host

import (
	"context"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"nodegate/internal/host/config"
	"nodegate/internal/host/program"
	"nodegate/internal/ruleset"
)

// Once returns a host for one run of the checks, which caches what several checks need, some of
// them concurrently. It reads and parses the packet filter's rules, lists the links, reads
// kubelet's configuration and the targets' wanted units, and runs a program for its version at most
// once.
func Once(h *Host) *Host {
	once := *h
	once.opened = nil // h closes them
	once.Rules = &rulesOnce{Rules: h.Rules}
	once.Links = &linksOnce{Links: h.Links}
	once.Kernel = &kernelOnce{Kernel: h.Kernel}
	once.wanted = sync.OnceValues(func() (map[string]string, error) { return wantedUnits(h.Files) })
	once.kubelet = sync.OnceValues(func() (config.Kubelet, error) { return config.ReadKubelet(h.Files) })
	return &once
}

type linksOnce struct {
	Links
	once  sync.Once
	links []Link
	err   error
}

func (l *linksOnce) List(ctx context.Context) ([]Link, error) {
	l.once.Do(func() { l.links, l.err = l.Links.List(ctx) })
	return slices.Clone(l.links), l.err
}

// rulesOnce caches the rules as Rulesets first read them, parsed only.
type rulesOnce struct {
	Rules
	once sync.Once
	sets []*ruleset.Set
	err  error
}

func (r *rulesOnce) rulesets(ctx context.Context) ([]*ruleset.Set, error) {
	r.once.Do(func() { r.sets, r.err = readRulesets(ctx, r.Rules) })
	return slices.Clone(r.sets), r.err
}

// kernelOnce caches the versions of programs: starting kubelet costs more than most checks.
type kernelOnce struct {
	Kernel
	versions sync.Map // command line -> func() (string, error)
}

func (k *kernelOnce) Version(ctx context.Context, program string, flags ...string) (string, error) {
	ask := sync.OnceValues(func() (string, error) { return k.Kernel.Version(ctx, program, flags...) })
	first, _ := k.versions.LoadOrStore(commandKey(program, flags), ask)
	return first.(func() (string, error))()
}

// Kubelet returns kubelet's configuration according to the machine's files. A host made by Once
// reads them only once. Callers must not change the maps.
func (h *Host) Kubelet() (config.Kubelet, error) {
	if h.kubelet != nil {
		return h.kubelet()
	}
	return config.ReadKubelet(h.Files)
}

// Remember prepares a host for watch, which inspects repeatedly: checks may store state in Memory,
// and a program's version is cached until its file changes. Starting kubelet for its version costs
// more than the rest of a round.
func (h *Host) Remember() {
	h.Memory = &Memory{}
	h.Kernel = &kernelCache{Kernel: h.Kernel, versions: map[string]cachedVersion{}}
}

// versionTTL bounds the age of a cached version: a wrapper script does not change when the program
// that it runs is replaced.
const versionTTL = 10 * time.Minute

type kernelCache struct {
	Kernel
	mu       sync.Mutex
	versions map[string]cachedVersion // by command line
}

type cachedVersion struct {
	file identity
	at   time.Time
	text string
}

// identity changes when a file is replaced or written to.
type identity struct {
	device, inode    uint64
	size             int64
	changed, written syscall.Timespec
}

// Version caches the output of a program, but no error.
func (k *kernelCache) Version(ctx context.Context, name string, flags ...string) (string, error) {
	file, err := identify(name)
	if err != nil {
		return k.Kernel.Version(ctx, name, flags...) // whose error is clearer
	}
	line := commandKey(name, flags)
	k.mu.Lock()
	known, is := k.versions[line]
	k.mu.Unlock()
	if is && known.file == file && time.Since(known.at) < versionTTL {
		return known.text, nil
	}
	now := cachedVersion{file: file, at: time.Now()}
	if now.text, err = k.Kernel.Version(ctx, name, flags...); err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.versions, func(_ string, s cachedVersion) bool { return time.Since(s.at) >= versionTTL })
	k.versions[line] = now
	return now.text, nil
}

func identify(name string) (identity, error) {
	path, err := program.Find(name)
	if err != nil {
		return identity{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return identity{}, err
	}
	s := info.Sys().(*syscall.Stat_t)
	return identity{device: s.Dev, inode: s.Ino, size: s.Size, changed: s.Ctim, written: s.Mtim}, nil
}
