package kops

import (
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ownUnits lists units that kops itself installs. A second task of the same name ends nodeup with
// "found duplicate tasks".
func ownUnits() []string {
	return []string{kubelet, "containerd.service", "docker.service", "protokube.service", "kops-configuration.service", "logrotate.service",
		"logrotate.timer"}
}

// ownFiles lists files that kops itself writes, with the same consequence.
func ownFiles() []string {
	return []string{"/etc/sysctl.d/99-k8s-general.conf", "/etc/containerd/config-kops.toml", "/etc/sysconfig/containerd",
		"/etc/sysconfig/kubelet",
		"/etc/sysconfig/protokube", "/etc/crictl.yaml", "/var/lib/kubelet/kubeconfig", "/var/lib/kube-proxy/kubeconfig"}
}

// unitOf returns the unit that kops makes of a hook, or "" if kops generates the name.
func unitOf(h *yaml.Node) string {
	name := text(h, "name")
	suffixes := []string{".service", ".socket", ".device", ".mount", ".automount", ".swap", ".target", ".path", ".timer", ".snapshot",
		".slice", ".scope"}
	if name == "" || slices.Contains(suffixes, path.Ext(name)) {
		return name
	}
	return name + ".service"
}

// checkUnitName compares a hook's unit with the earlier hooks of the same document, and adds it to
// before. A hook of an InstanceGroup replaces the Cluster's hook of the same name; that is intended.
func (l *linter) checkUnitName(h *yaml.Node, before map[string][]*yaml.Node) {
	name, unit := field(h, "name"), unitOf(h)
	if unit == "" {
		return
	}
	others := before[unit]
	before[unit] = append(others, h)
	if slices.Contains(ownUnits(), unit) {
		l.addFindingAt(name, "kops-unit", unit+" belongs to kops: nodeup ends with \"found duplicate tasks\", and the node never joins",
			"use a different name")
	}
	for _, other := range others {
		switch {
		case !shareNode(h, other):
		case text(other, "name") == name.Value:
			l.addFindingAt(name, "duplicate-hook", "a second hook of this name: kops ignores it without a message", "use a different name")
			return
		default:
			l.addFindingAt(name, "duplicate-unit", text(other, "name")+" on line "+lineText(other)+" is the same unit: nodeup ends with "+
				"\"found duplicate tasks\", and the node never joins", "use a different name")
			return
		}
	}
}

// checkPath compares a fileAsset's path with the earlier ones of the same document, and adds it to before.
func (l *linter) checkPath(a *yaml.Node, before map[string][]*yaml.Node) {
	at := field(a, "path")
	if at == nil {
		return
	}
	others := before[at.Value]
	before[at.Value] = append(others, a)
	if slices.Contains(ownFiles(), at.Value) {
		do := "use a different path"
		if strings.HasPrefix(at.Value, "/etc/sysctl.d/") {
			do = "use sysctlParameters"
		}
		l.addFindingAt(at, "kops-file", "kops writes this file itself: nodeup ends with \"found duplicate tasks\", and the node never joins", do)
	}
	for _, other := range others {
		if shareNode(a, other) {
			l.addFindingAt(at, "duplicate-file", "the fileAsset on line "+lineText(other)+" has the same path: kops ignores this one "+
				"without a message",
				"remove one of them")
			return
		}
	}
}

// shareNode reports whether two entries reach the same node. An entry without roles reaches every node.
func shareNode(a, b *yaml.Node) bool {
	roles, others := rolesOf(a), rolesOf(b)
	return roles == nil || others == nil || slices.ContainsFunc(roles, func(role string) bool { return slices.Contains(others, role) })
}

// rolesOf returns the roles of an entry as kops converts them.
func rolesOf(m *yaml.Node) []string {
	var all []string
	if list := field(m, "roles"); list != nil {
		for _, r := range list.Content {
			role := resolveAlias(r).Value
			if role == "Master" {
				role = "ControlPlane"
			}
			all = append(all, role)
		}
	}
	return all
}

// checkMissingRole reports entries for all nodes that leave out the role APIServer, if the manifest has such nodes.
func (l *linter) checkMissingRole(m *yaml.Node, what string) {
	roles := rolesOf(m)
	names := func(role string) bool { return slices.Contains(roles, role) }
	if l.apiServers && names("ControlPlane") && names("Node") && !names("APIServer") {
		l.addFindingAt(field(m, "roles"), "no-apiserver", "an InstanceGroup in this manifest has the role APIServer, and its nodes do "+
			"not get this "+what,
			"write `roles: [ControlPlane, Node, APIServer]`")
	}
}

// checkTextFields reports fields that must be strings, but that YAML 1.1, which kops reads, takes for
// a number or a boolean.
func (l *linter) checkTextFields(m *yaml.Node, names ...string) {
	for _, name := range names {
		v := field(m, name)
		if v == nil || v.Kind != yaml.ScalarNode || v.Style != 0 {
			continue
		}
		is := map[string]string{"!!int": "a number", "!!float": "a number", "!!bool": "a boolean"}[v.Tag]
		if slices.Contains([]string{"y", "n", "yes", "no", "on", "off"}, strings.ToLower(v.Value)) {
			is = "a boolean"
		}
		if is != "" {
			l.addFindingAt(v, "not-text", "kops' YAML parser reads "+v.Value+" as "+is+", and kops refuses it as "+name,
				"quote it: `'"+v.Value+"'`")
		}
	}
}
