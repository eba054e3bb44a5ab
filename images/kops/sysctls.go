package kops

import (
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"nodegate/policy"
)

// checkDocuments checks each document with regard to the others: a Cluster's fileAsset may gate an
// InstanceGroup's nodes, and its sysctls override theirs.
func (l *linter) checkDocuments() {
	gated := false
	var modules []string
	for _, s := range l.specs {
		for _, h := range s.hooks {
			if !isDisabled(h) && path.Ext(unitOf(h)) == ".timer" {
				l.timers = append(l.timers, unitOf(h))
			}
		}
		for _, a := range s.assets {
			gated = gated || gatesKubelet(a)
			if path.Dir(text(a, "path")) == "/etc/modules-load.d" {
				modules = append(modules, strings.Fields(text(a, "content"))...)
			}
		}
	}
	cluster := map[policy.Key]string{}
	for _, s := range l.specs {
		for _, p := range s.sysctls {
			if key, value, ok := parseParameter(p); ok && !s.group {
				cluster[key] = value
			}
		}
	}
	for _, s := range l.specs {
		for _, h := range s.hooks {
			l.checkHook(h, gated)
		}
		for _, a := range s.assets {
			l.checkAsset(a)
		}
		for _, p := range s.sysctls {
			l.checkSysctl(s, p, modules, cluster)
		}
	}
}

func (l *linter) checkSysctl(s spec, p *yaml.Node, modules []string, cluster map[policy.Key]string) {
	key, value, ok := parseParameter(p)
	if !ok { // kops refuses it
		return
	}
	if module := policy.ModuleOf(key); module != "" && !slices.Contains(modules, module) {
		l.addFindingAt(p, "no-module", "after a reboot systemd sets sysctls before "+module+" is loaded and skips this one; at "+
			"the first boot nodeup's `sysctl --system` fails if the module is not loaded",
			"add a fileAsset /etc/modules-load.d/k8s.conf with "+module+", or use a nodegate policy")
	}
	if other, ok := cluster[key]; ok && s.group && other != value {
		l.addFindingAt(p, "cluster-wins", "the Cluster sets "+other+" and wins: its sysctlParameters are applied after an InstanceGroup's",
			"remove the parameter from the Cluster, and set it in every InstanceGroup")
	}
}

// parseParameter splits KEY=VALUE.
func parseParameter(p *yaml.Node) (policy.Key, string, bool) {
	name, value, ok := strings.Cut(p.Value, "=")
	key, err := policy.ParseKey(strings.TrimPrefix(strings.TrimSpace(name), "-"))
	if err != nil {
		key = policy.Key(strings.TrimSpace(name))
	}
	return key, strings.Join(strings.Fields(value), " "), ok
}
