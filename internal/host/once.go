package host

import (
	"context"
	"slices"
	"sync"

	"nodegate/internal/host/config"
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
