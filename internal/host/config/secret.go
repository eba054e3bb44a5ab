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

// leftOut replaces a secret.
const leftOut = "(left out)"

// These are compiled by the first snapshot: compiling them at start-up took a hundredth of the time
// of a check, which does not need them.
var (
	privateKey = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)
	})
	// Only a file that matches both as keys, in YAML or JSON, is decoded. HCL does not use such
	// keys.
	usersKey  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(^|[\s{,"'])users["']?\s*:`) })
	secretKey = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(client-key-data|token|password|auth-provider|exec|secret)["']?\s*:`)
	})
)

// secretKeys are the keys of a kubeconfig whose values grant access (client-go's AuthInfo; for
// exec, its arguments and environment).
var secretKeys = map[string]bool{
	"client-key-data": true, "token": true, "password": true, "auth-provider": true, "exec": true, "secret": true,
}

// WithoutSecrets returns a file as a snapshot may store it: without private keys, and a kubeconfig
// without the values that grant access. A file that looks like a kubeconfig but cannot be decoded
// is left out completely.
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
			found = blankSecrets(&one) || found
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

// HasPrivateKey reports whether a file contains a PEM private key, or contained one before
// WithoutSecrets removed it.
func HasPrivateKey(text []byte) bool {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return true
		}
	}
	return bytes.Contains(text, []byte(leftOut))
}

// blankSecrets replaces the values of secretKeys, and reports whether there were any.
func blankSecrets(n *yaml.Node) bool {
	found := false
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && secretKeys[n.Content[i-1].Value] {
			n.Content[i] = &yaml.Node{Kind: yaml.ScalarNode, Value: leftOut}
			found = true
			continue
		}
		found = blankSecrets(child) || found
	}
	return found
}
