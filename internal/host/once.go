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

// Once returns a host that reads and parses the rules of the packet filter, lists
// the links, reads kubelet's configuration and which units targets want, and asks a
// program for its version at most once, and returns them from memory later. It is for
// one run of the checks: several of them need the same, some beside each other.
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

// rulesOnce keeps what the rules were when Rulesets first read them, and none of their text.
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

// kernelOnce keeps what programs said: to start kubelet costs more than most checks.
type kernelOnce struct {
	Kernel
	said sync.Map // command line -> func() (string, error)
}

func (k *kernelOnce) Version(ctx context.Context, program string, flags ...string) (string, error) {
	ask := sync.OnceValues(func() (string, error) { return k.Kernel.Version(ctx, program, flags...) })
	first, _ := k.said.LoadOrStore(tried(program, flags), ask)
	return first.(func() (string, error))()
}

// Kubelet returns what the files of the machine say about kubelet's configuration.
// On a host of Once they are read once. Nobody may change the maps.
func (h *Host) Kubelet() (config.Kubelet, error) {
	if h.kubelet != nil {
		return h.kubelet()
	}
	return config.ReadKubelet(h.Files)
}

// Remember makes a host for watch, which inspects again and again: checks may keep something in Memory, and a program is asked for its
// version again only where its file is another one. Starting kubelet for that costs more than the rest of a round.
func (h *Host) Remember() {
	h.Memory = &Memory{}
	h.Kernel = &kernelRemembered{Kernel: h.Kernel, said: map[string]saying{}}
}

// sayingTime is how long a saying counts: the file of a script that runs another program stays when that one is replaced.
const sayingTime = 10 * time.Minute

type kernelRemembered struct {
	Kernel
	mu   sync.Mutex
	said map[string]saying // by command line
}

type saying struct {
	file identity
	at   time.Time
	text string
}

// identity differs where a file was replaced or written to.
type identity struct {
	device, inode    uint64
	size             int64
	changed, written syscall.Timespec
}

// Version remembers what a program said, not why one failed.
func (k *kernelRemembered) Version(ctx context.Context, name string, flags ...string) (string, error) {
	file, err := identify(name)
	if err != nil {
		return k.Kernel.Version(ctx, name, flags...) // which says better what is wrong
	}
	line := tried(name, flags)
	k.mu.Lock()
	known, is := k.said[line]
	k.mu.Unlock()
	if is && known.file == file && time.Since(known.at) < sayingTime {
		return known.text, nil
	}
	now := saying{file: file, at: time.Now()}
	if now.text, err = k.Kernel.Version(ctx, name, flags...); err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.said, func(_ string, s saying) bool { return time.Since(s.at) >= sayingTime })
	k.said[line] = now
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
