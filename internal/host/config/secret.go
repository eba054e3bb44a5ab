package config

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"regexp"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// leftOut stands in the place of a secret.
const leftOut = "(left out)"

// Compiled by the first recording: at start-up they took a hundredth of a check, which needs none.
var (
	privateKey = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)
	})
	// A file whose keys are looked at has both: as keys, in YAML or JSON. HCL has no such keys.
	usersKey  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(^|[\s{,"'])users["']?\s*:`) })
	secretKey = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(client-key-data|token|password|auth-provider|exec|secret)["']?\s*:`)
	})
)

// secretKeys are the keys of a kubeconfig whose values let somebody in (client-go's AuthInfo; for exec, its arguments and environment).
var secretKeys = map[string]bool{
	"client-key-data": true, "token": true, "password": true, "auth-provider": true, "exec": true, "secret": true,
}

// WithoutSecrets returns a file as a recording may have it: without private keys, and a kubeconfig without what lets somebody in. A
// file that is like a kubeconfig and cannot be taken apart is left out whole.
func WithoutSecrets(text []byte) []byte {
	text = privateKey().ReplaceAll(text, []byte(leftOut))
	if !usersKey().Match(text) || !secretKey().Match(text) {
		return text
	}
	var without bytes.Buffer
	documents, out := yaml.NewDecoder(bytes.NewReader(text)), yaml.NewEncoder(&without)
	found := false
	for {
		var one yaml.Node
		err := documents.Decode(&one)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			found = blank(&one) || found
			err = out.Encode(&one)
		}
		if err != nil {
			return []byte(leftOut)
		}
	}
	if err := out.Close(); err != nil {
		return []byte(leftOut)
	}
	if !found {
		return text
	}
	return without.Bytes()
}

// HasPrivateKey reports whether a file has a private key in PEM, or had one before WithoutSecrets left it out.
func HasPrivateKey(text []byte) bool {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return true
		}
	}
	return bytes.Contains(text, []byte(leftOut))
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
