package config

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// mostNodes bounds what a file's aliases may make of it.
const mostNodes = 100_000

// settingsOf reads a file as kubelet does, whose YAML is of version 1.1: of a key that is there twice the last one counts, and yes, no, on
// and off are booleans (k8s.io/apimachinery's decoder logs duplicates and goes on, sigs.k8s.io/yaml). JSON is YAML too.
func settingsOf(text []byte) (map[string]any, error) {
	var file yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	left := mostNodes
	settings, is := plainValue(&file, &left).(map[string]any)
	if !is && file.Kind != 0 {
		return nil, yaml.Unmarshal(text, &settings) // says what it is instead
	}
	return settings, nil
}

// plainValue returns a node's value; nil for one that cannot be told, and beyond the bound.
func plainValue(n *yaml.Node, left *int) any {
	if *left--; *left < 0 {
		return nil
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return plainValue(n.Content[0], left)
	case yaml.AliasNode:
		return plainValue(n.Alias, left)
	case yaml.MappingNode:
		values := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			values[n.Content[i].Value] = plainValue(n.Content[i+1], left)
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
