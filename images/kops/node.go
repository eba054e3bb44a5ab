package kops

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// resolveAlias returns the node that an alias refers to. The yaml package refuses an alias to itself.
func resolveAlias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// field returns the value of a mapping's key, or nil if the key is missing or null.
func field(m *yaml.Node, name string) *yaml.Node {
	var merged []*yaml.Node
	for i := 0; i+1 < len(m.Content); i += 2 {
		v := resolveAlias(m.Content[i+1])
		switch {
		case m.Content[i].Tag == "!!merge" && v.Kind == yaml.SequenceNode:
			merged = append(merged, v.Content...)
		case m.Content[i].Tag == "!!merge":
			merged = append(merged, v)
		case m.Content[i].Value == name && v.Tag != "!!null":
			return v
		}
	}
	for _, other := range merged { // from <<; merge keys inside a merged mapping are not followed
		other = resolveAlias(other)
		for i := 0; i+1 < len(other.Content); i += 2 {
			if v := resolveAlias(other.Content[i+1]); other.Content[i].Value == name && v.Tag != "!!null" {
				return v
			}
		}
	}
	return nil
}

// text returns the value of a scalar field, or "" if it is missing.
func text(m *yaml.Node, name string) string {
	if v := field(m, name); v != nil && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}

// isTrue reports whether YAML 1.1, which kops reads, takes a field for true.
func isTrue(m *yaml.Node, name string) bool {
	return slices.Contains([]string{"true", "yes", "on", "y"}, strings.ToLower(text(m, name)))
}

// isDisabled reports whether a hook is disabled: kops makes no unit of it.
func isDisabled(h *yaml.Node) bool {
	return isTrue(h, "disabled") || slices.Contains([]string{"false", "no", "off", "n"}, strings.ToLower(text(h, "enabled")))
}

// listField returns the entries of a list whose nodes must all be of one kind. Anything else is a mistake.
func (l *linter) listField(m *yaml.Node, name string, kind yaml.Kind) []*yaml.Node {
	v := field(m, name)
	if v == nil {
		return nil
	}
	if v.Kind != yaml.SequenceNode {
		l.addMistake(v, "%s must be a list; start each entry with \"- \"", name)
		return nil
	}
	var all []*yaml.Node
	for _, n := range v.Content {
		n = resolveAlias(n)
		if n.Kind != kind {
			l.addMistake(n, "an entry of %s must be %s", name, map[yaml.Kind]string{yaml.MappingNode: "a mapping (name: ...)",
				yaml.ScalarNode: "a string"}[kind])
			continue
		}
		all = append(all, n)
	}
	return all
}

// positionOf returns the position of line i of a scalar in the manifest. It is exact for a literal
// block; otherwise it is the start of the scalar.
func positionOf(n *yaml.Node, i int) (line, column int) {
	if n.Style&yaml.LiteralStyle != 0 {
		return n.Line + 1 + i, 1
	}
	return n.Line, n.Column
}

// setting is one assignment in a unit file.
type setting struct {
	line         int // from 0
	section      string
	name, values string
}

// parseUnit returns the assignments of a unit file. Those before the first section header belong to
// the given section.
func parseUnit(text, section string) []setting {
	var all []setting
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] == '[' && line[len(line)-1] == ']' {
			section = line[1 : len(line)-1]
			continue
		}
		if name, value, ok := strings.Cut(line, "="); ok {
			all = append(all, setting{i, section, strings.TrimSpace(name), strings.TrimSpace(value)})
		}
	}
	return all
}

// hasInstall reports whether a unit file has an [Install] section that makes a target start it at boot.
func hasInstall(all []setting) bool {
	return slices.ContainsFunc(all, func(s setting) bool {
		return s.section == "Install" && (s.name == "WantedBy" || s.name == "RequiredBy") && s.values != ""
	})
}

// containsUnit reports whether a setting lists a unit.
func (s setting) containsUnit(unit string) bool {
	return slices.Contains(strings.Fields(s.values), unit)
}
