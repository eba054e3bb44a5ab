package host

import (
	"context"
	"slices"
	"sync"

	"nodegate/internal/host/config"
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
