package kops

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// follow is the node that an alias means. yaml refuses an alias of itself.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// field is the value of a mapping's key, nil where it has none or null.
func field(m *yaml.Node, name string) *yaml.Node {
	_, v := entry(m, name)
	return v
}

func entry(m *yaml.Node, name string) (key, value *yaml.Node) {
	var merged []*yaml.Node
	for i := 0; i+1 < len(m.Content); i += 2 {
		v := follow(m.Content[i+1])
		switch {
		case m.Content[i].Tag == "!!merge" && v.Kind == yaml.SequenceNode:
			merged = append(merged, v.Content...)
		case m.Content[i].Tag == "!!merge":
			merged = append(merged, v)
		case m.Content[i].Value == name && v.Tag != "!!null":
			return m.Content[i], v
		}
	}
	for _, other := range merged { // of <<: a mapping that was merged does not merge further here
		other = follow(other)
		for i := 0; i+1 < len(other.Content); i += 2 {
			if v := follow(other.Content[i+1]); other.Content[i].Value == name && v.Tag != "!!null" {
				return other.Content[i], v
			}
		}
	}
	return nil, nil
}

// lineText is the line on which a node begins, as text.
func lineText(n *yaml.Node) string { return strconv.Itoa(n.Line) }

// text is a scalar field's text, "" where there is none.
func text(m *yaml.Node, name string) string {
	if v := field(m, name); v != nil && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}

// yes reports whether a field is true, as kops' YAML 1.1 has it.
func yes(m *yaml.Node, name string) bool {
	return slices.Contains([]string{"true", "yes", "on", "y"}, strings.ToLower(text(m, name)))
}

// off reports whether a hook is switched off: kops makes no unit of it.
func off(h *yaml.Node) bool {
	return yes(h, "disabled") || slices.Contains([]string{"false", "no", "off", "n"}, strings.ToLower(text(h, "enabled")))
}

// list is a field that is a list of one kind of node. Another shape is a mistake.
func (l *linter) list(m *yaml.Node, name string, kind yaml.Kind) []*yaml.Node {
	v := field(m, name)
	if v == nil {
		return nil
	}
	if v.Kind != yaml.SequenceNode {
		l.mistake(v, "%s is a list: each entry starts with \"- \"", name)
		return nil
	}
	var all []*yaml.Node
	for _, n := range v.Content {
		n = follow(n)
		if n.Kind != kind {
			l.mistake(n, "an entry of %s is %s", name, map[yaml.Kind]string{yaml.MappingNode: "a mapping, name: ...",
				yaml.ScalarNode: "one text"}[kind])
			continue
		}
		all = append(all, n)
	}
	return all
}

// lineOf is where line i of a text stands in the manifest: known for a block,
// otherwise the text's own start.
func lineOf(n *yaml.Node, i int) (line, column int) {
	if n.Style&yaml.LiteralStyle != 0 {
		return n.Line + 1 + i, 1
	}
	return n.Line, n.Column
}

// setting is one assignment in a unit's text.
type setting struct {
	line         int // from 0
	section      string
	name, values string
}

// settings reads a unit's text. What stands before the first section is in the
// given one.
func settings(text, section string) []setting {
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

// installed reports whether a unit's text says who starts it at boot.
func installed(all []setting) bool {
	return slices.ContainsFunc(all, func(s setting) bool {
		return s.section == "Install" && (s.name == "WantedBy" || s.name == "RequiredBy") && s.values != ""
	})
}

// names reports whether a list of units names one.
func (s setting) names(unit string) bool {
	return slices.Contains(strings.Fields(s.values), unit)
}
