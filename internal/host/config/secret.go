package config

import (
	"bytes"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// leftOut stands in the place of a secret.
const leftOut = "(left out)"

var (
	privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)
	// secretWord is in every file whose keys are looked at.
	secretWord = regexp.MustCompile(`client-key-data|token|password|auth-provider|exec|secret`)
)

// secretKeys are the keys of a kubeconfig whose values let somebody in (client-go's AuthInfo; for exec, its arguments and environment).
var secretKeys = map[string]bool{
	"client-key-data": true, "token": true, "password": true, "auth-provider": true, "exec": true, "secret": true,
}

// WithoutSecrets returns a file as a recording may have it: without private keys, and a kubeconfig without what lets somebody in. A
// file that is like a kubeconfig and cannot be taken apart is left out whole.
func WithoutSecrets(text []byte) []byte {
	text = privateKey.ReplaceAll(text, []byte(leftOut))
	if !bytes.Contains(text, []byte("users")) || !secretWord.Match(text) {
		return text
	}
	var file yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		return []byte(leftOut)
	}
	if !blank(&file) {
		return text
	}
	without, err := yaml.Marshal(&file)
	if err != nil {
		return []byte(leftOut)
	}
	return without
}

// blank takes the values of secretKeys away, and reports whether there was one.
func blank(n *yaml.Node) bool {
	found := false
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && secretKeys[n.Content[i-1].Value] {
			n.Content[i] = &yaml.Node{Kind: yaml.ScalarNode, Value: leftOut}
			found = true
			continue
		}
		found = blank(child) || found
	}
	return found
}
