package config

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"nodegate/internal/host/file"
)

// mostYAML bounds a file that is decoded as YAML, which takes a hundred times as much memory. Such
// files come from ConfigMaps, which have at most 1 MiB.
const mostYAML = 1 << 20

// ReadYAML reads a YAML file that may be absent.
func ReadYAML(files Files, name string) (text []byte, found bool, err error) {
	text, found, err = ReadIfAny(files, name)
	if len(text) > mostYAML {
		return nil, false, file.TooLarge(name, mostYAML)
	}
	return text, found, err
}

// UnmarshalYAML decodes a YAML file. The error quotes no value of the file.
func UnmarshalYAML(text []byte, to any) error {
	if err := yaml.Unmarshal(text, to); err != nil {
		return errors.New(regexp.MustCompile("`[^`]*`").ReplaceAllString(PlainMessage(err.Error()), "`"+LeftOut+"`"))
	}
	return nil
}

// mostNodes bounds the number of nodes to which aliases may expand a file.
const mostNodes = 100_000

// settingsOf reads a file as kubelet does, with YAML 1.1: the last of several duplicate keys
// counts, and yes, no, on and off are booleans (k8s.io/apimachinery's decoder only logs duplicates,
// sigs.k8s.io/yaml). JSON is YAML too.
func settingsOf(text []byte) (map[string]any, error) {
	var file yaml.Node
	if err := UnmarshalYAML(text, &file); err != nil {
		return nil, err
	}
	r := plainReader{left: mostNodes}
	settings, is := r.value(&file).(map[string]any)
	if r.mistake != nil {
		return nil, r.mistake
	}
	if !is && file.Kind != 0 {
		return nil, UnmarshalYAML(text, &settings) // its error names the actual type
	}
	return settings, nil
}

type plainReader struct {
	left    int   // number of nodes that may still be read
	mistake error // a mistake that makes kubelet exit
}

// value returns a node's value, nil if it cannot be decoded or if the bound is reached.
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

// merge applies a merge key (<<) at its position, as go.yaml.in/yaml/v2 does, which kubelet uses.
// The merged values replace values above the key, which other libraries keep, and values below
// replace the merged ones. In a list of maps, earlier maps take precedence.
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
		merged, _ := r.value(n).(map[string]any) // nil if the bound is reached
		maps.Copy(values, merged)
	}
}
