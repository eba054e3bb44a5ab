package kops

import (
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ownUnits are services of kops' own, and ownFiles files that it writes itself: a
// second task of that name ends nodeup with "found duplicate tasks".
func ownUnits() []string {
	return []string{kubelet, "containerd.service", "docker.service", "protokube.service", "kops-configuration.service", "logrotate.service",
		"logrotate.timer"}
}

func ownFiles() []string {
	return []string{"/etc/sysctl.d/99-k8s-general.conf", "/etc/containerd/config-kops.toml", "/etc/sysconfig/containerd",
		"/etc/sysconfig/kubelet",
		"/etc/sysconfig/protokube", "/etc/crictl.yaml", "/var/lib/kubelet/kubeconfig", "/var/lib/kube-proxy/kubeconfig"}
}

// unitOf is the unit that kops makes of a hook, "" where it makes up the name.
func unitOf(h *yaml.Node) string {
	name := text(h, "name")
	suffixes := []string{".service", ".socket", ".device", ".mount", ".automount", ".swap", ".target", ".path", ".timer", ".snapshot",
		".slice", ".scope"}
	if name == "" || slices.Contains(suffixes, path.Ext(name)) {
		return name
	}
	return name + ".service"
}

// unit looks at the name of a hook, and adds it to those of the document before it. A hook
// of an InstanceGroup replaces the Cluster's of the same name, as it should.
func (l *linter) unit(h *yaml.Node, before map[string][]*yaml.Node) {
	name, unit := field(h, "name"), unitOf(h)
	if unit == "" {
		return
	}
	others := before[unit]
	before[unit] = append(others, h)
	if slices.Contains(ownUnits(), unit) {
		l.findAt(name, "kops-unit", unit+" is kops' own: nodeup ends with \"found duplicate tasks\", and the node never joins", "another name")
	}
	for _, other := range others {
		switch {
		case !meet(h, other):
		case text(other, "name") == name.Value:
			l.findAt(name, "duplicate-hook", "a second hook of this name: kops leaves it out without a word", "another name")
			return
		default:
			l.findAt(name, "duplicate-unit", text(other, "name")+" in line "+lineText(other)+" is the same unit: nodeup ends with "+
				"\"found duplicate tasks\", and the node never joins", "another name")
			return
		}
	}
}

// path looks at where a fileAsset is written, and adds it to those of the document before it.
func (l *linter) path(a *yaml.Node, before map[string][]*yaml.Node) {
	at := field(a, "path")
	if at == nil {
		return
	}
	others := before[at.Value]
	before[at.Value] = append(others, a)
	if slices.Contains(ownFiles(), at.Value) {
		do := "another path"
		if strings.HasPrefix(at.Value, "/etc/sysctl.d/") {
			do = "sysctlParameters"
		}
		l.findAt(at, "kops-file", "kops writes this file itself: nodeup ends with \"found duplicate tasks\", and the node never joins", do)
	}
	for _, other := range others {
		if meet(a, other) {
			l.findAt(at, "duplicate-file", "the fileAsset in line "+lineText(other)+" has this path: kops leaves this one out without a word",
				"one of them")
			return
		}
	}
}

// meet reports whether two entries come to the same node: without roles, to every one.
func meet(a, b *yaml.Node) bool {
	of, others := rolesOf(a), rolesOf(b)
	return of == nil || others == nil || slices.ContainsFunc(of, func(role string) bool { return slices.Contains(others, role) })
}

// rolesOf returns the roles of an entry as kops converts them.
func rolesOf(m *yaml.Node) []string {
	var all []string
	if list := field(m, "roles"); list != nil {
		for _, r := range list.Content {
			role := follow(r).Value
			if role == "Master" {
				role = "ControlPlane"
			}
			all = append(all, role)
		}
	}
	return all
}

// missed looks for entries that name every role but the one that some nodes here have.
func (l *linter) missed(m *yaml.Node, what string) {
	roles := rolesOf(m)
	names := func(role string) bool { return slices.Contains(roles, role) }
	if l.apiServers && names("ControlPlane") && names("Node") && !names("APIServer") {
		l.findAt(field(m, "roles"), "no-apiserver", "an InstanceGroup here has the role APIServer: its nodes do not get this "+what,
			"roles: [ControlPlane, Node, APIServer]")
	}
}

// texts names fields that kops wants a text in, and that YAML 1.1, which kops reads,
// takes for something else.
func (l *linter) texts(m *yaml.Node, names ...string) {
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
			l.findAt(v, "not-text", "kops' YAML takes "+v.Value+" for "+is+", and refuses it as "+name, "'"+v.Value+"'")
		}
	}
}
