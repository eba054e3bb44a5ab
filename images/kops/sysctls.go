package kops

import (
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"nodegate/policy"
)

// acrossDocuments looks at every part, knowing the others: a Cluster's file may
// gate an InstanceGroup's nodes, and its sysctls win over theirs.
func (l *linter) acrossDocuments() {
	gated := false
	var modules []string
	for _, s := range l.specs {
		for _, h := range s.hooks {
			if !off(h) && path.Ext(unitOf(h)) == ".timer" {
				l.timers = append(l.timers, unitOf(h))
			}
		}
		for _, a := range s.assets {
			gated = gated || gates(a)
			if path.Dir(text(a, "path")) == "/etc/modules-load.d" {
				modules = append(modules, strings.Fields(text(a, "content"))...)
			}
		}
	}
	cluster := map[policy.Key]string{}
	for _, s := range l.specs {
		for _, p := range s.sysctls {
			if key, value, ok := parameter(p); ok && !s.group {
				cluster[key] = value
			}
		}
	}
	for _, s := range l.specs {
		units, paths := map[string][]*yaml.Node{}, map[string][]*yaml.Node{}
		for _, h := range s.hooks {
			l.unit(h, units)
			l.hook(s, h, gated)
		}
		for _, a := range s.assets {
			l.path(a, paths)
			l.asset(a)
		}
		for _, p := range s.sysctls {
			l.sysctl(s, p, modules, cluster)
		}
	}
}

func (l *linter) sysctl(s spec, p *yaml.Node, modules []string, cluster map[policy.Key]string) {
	key, value, ok := parameter(p)
	if !ok {
		l.findAt(p, "no-equals", "kops refuses a sysctlParameter without =", "KEY=VALUE")
		return
	}
	if module := policy.ModuleOf(key); module != "" && !slices.Contains(modules, module) {
		l.findAt(p, "no-module", "at a reboot systemd sets sysctls before anybody has loaded "+module+", and this one is skipped; at "+
			"the first boot nodeup's `sysctl --system` fails where it is not loaded",
			"a fileAsset /etc/modules-load.d/k8s.conf with "+module+", or a nodegate policy")
	}
	if other, ok := cluster[key]; ok && s.group && other != value {
		l.findAt(p, "cluster-wins", "the Cluster says "+other+", and the Cluster's sysctlParameters come after an InstanceGroup's",
			"take it out of the Cluster, and say it in every InstanceGroup")
	}
}

// parameter takes KEY=VALUE apart.
func parameter(p *yaml.Node) (policy.Key, string, bool) {
	name, value, ok := strings.Cut(p.Value, "=")
	key, err := policy.ParseKey(strings.TrimPrefix(strings.TrimSpace(name), "-"))
	if err != nil {
		key = policy.Key(strings.TrimSpace(name))
	}
	return key, strings.Join(strings.Fields(value), " "), ok
}
