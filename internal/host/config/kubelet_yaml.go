package config

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"nodegate/internal/host/file"
)

// mostYAML bounds a file that is taken apart as YAML, which makes a hundred times as much of it. Such files come out of ConfigMaps, and
// these have at most 1 MiB.
const mostYAML = 1 << 20

// ReadYAML reads a file of YAML that may be absent.
func ReadYAML(files Files, name string) (text []byte, found bool, err error) {
	text, found, err = ReadIfAny(files, name)
	if len(text) > mostYAML {
		return nil, false, file.TooLarge(name, mostYAML)
	}
	return text, found, err
}

// mostNodes bounds what a file's aliases may make of it.
const mostNodes = 100_000

// settingsOf reads a file as kubelet does, whose YAML is of version 1.1: of a key that is there twice the last one counts, and yes, no, on
// and off are booleans (k8s.io/apimachinery's decoder logs duplicates and goes on, sigs.k8s.io/yaml). JSON is YAML too.
func settingsOf(text []byte) (map[string]any, error) {
	var file yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	r := plainReader{left: mostNodes}
	settings, is := r.value(&file).(map[string]any)
	if r.mistake != nil {
		return nil, r.mistake
	}
	if !is && file.Kind != 0 {
		return nil, yaml.Unmarshal(text, &settings) // says what it is instead
	}
	return settings, nil
}

type plainReader struct {
	left    int   // how many nodes are still read
	mistake error // one over which kubelet exits
}

// value returns a node's value; nil for one that cannot be told, and beyond the bound.
func (r *plainReader) value(n *yaml.Node) any {
	if r.left--; r.left < 0 {
		return nil
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return r.value(n.Content[0])
	case yaml.AliasNode:
		return r.value(n.Alias)
	case yaml.MappingNode:
		values := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key := n.Content[i]; key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" {
				r.merge(values, n.Content[i+1])
			} else {
				values[key.Value] = r.value(n.Content[i+1])
			}
		}
		return values
	case yaml.ScalarNode:
		if n.Style == 0 {
			switch strings.ToLower(n.Value) {
			case "yes", "on", "y":
				return true
			case "no", "off", "n":
				return false
			}
		}
	}
	var value any
	if n.Decode(&value) != nil {
		return nil
	}
	return value
}

// merge follows a merge key (<<) as kubelet's reader does, go.yaml.in/yaml/v2: where it stands. It replaces what is above it in the
// map, which other readers keep, and what is below replaces it. Of a list of maps the earlier ones win.
func (r *plainReader) merge(values map[string]any, from *yaml.Node) {
	sources := []*yaml.Node{from}
	if from.Kind == yaml.SequenceNode {
		sources = from.Content
	}
	for _, n := range slices.Backward(sources) {
		if n.Kind != yaml.MappingNode && (n.Kind != yaml.AliasNode || n.Alias.Kind != yaml.MappingNode) {
			r.mistake = errors.New("yaml: map merge requires map or sequence of maps as the value")
			return
		}
		merged, _ := r.value(n).(map[string]any) // nil beyond the bound
		maps.Copy(values, merged)
	}
}
