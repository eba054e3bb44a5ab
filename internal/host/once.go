package host

import (
	"context"
	"slices"
	"sync"

	"nodegate/internal/host/config"
	"nodegate/internal/ruleset"
)

// Once returns a host that reads and parses the rules of the packet filter, lists
// the links and reads kubelet's configuration at most once, and returns them from
// memory later. It is for one run of the checks: several of them need the same.
func Once(h *Host) *Host {
	once := *h
	once.opened = nil // h closes them
	once.Rules = &rulesOnce{Rules: h.Rules}
	once.Links = &linksOnce{Links: h.Links}
	once.kubelet = sync.OnceValues(func() (config.Kubelet, error) { return config.ReadKubelet(h.Files) })
	return &once
}

type linksOnce struct {
	Links
	done  bool
	links []Link
	err   error
}

func (l *linksOnce) List(ctx context.Context) ([]Link, error) {
	if !l.done {
		l.done = true
		l.links, l.err = l.Links.List(ctx)
	}
	return slices.Clone(l.links), l.err
}

// rulesOnce keeps what the rules were when Rulesets first read them, and none of their text.
type rulesOnce struct {
	Rules
	done bool
	sets []*ruleset.Set
	err  error
}

func (r *rulesOnce) rulesets(ctx context.Context) ([]*ruleset.Set, error) {
	if !r.done {
		r.done = true
		r.sets, r.err = readRulesets(ctx, r.Rules)
	}
	return slices.Clone(r.sets), r.err
}

// Kubelet returns what the files of the machine say about kubelet's configuration.
// On a host of Once they are read once. Nobody may change the maps.
func (h *Host) Kubelet() (config.Kubelet, error) {
	if h.kubelet != nil {
		return h.kubelet()
	}
	return config.ReadKubelet(h.Files)
}
