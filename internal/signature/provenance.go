package signature

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"aead.dev/minisign"
)

// ProvenanceName is the file that says how a release was made: an in-toto statement with
// a SLSA predicate. Its own signature is beside it.
const ProvenanceName = "nodegate.provenance.json"

// The types of the statement: https://in-toto.io/Statement/v1 and https://slsa.dev/provenance/v1.
const (
	StatementType = "https://in-toto.io/Statement/v1"
	PredicateType = "https://slsa.dev/provenance/v1"
)

// Statement is what was made, and from what, by whom.
type Statement struct {
	Type          string     `json:"_type"`
	Subject       []Resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     Predicate  `json:"predicate"`
}

// Resource is a file or a source, and its digests by their algorithm.
type Resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

// Predicate is SLSA's.
type Predicate struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		ResolvedDependencies []Resource        `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

// Provenance returns the statement in dir after proving its signature by the key, and
// that it speaks of the files of the list, with their sums, and of no others. The error
// wraps ErrDiffers where it does not.
func Provenance(dir string, key minisign.PublicKey, list []Sum) (Statement, error) {
	var s Statement
	name := filepath.Join(dir, ProvenanceName)
	text, err := readSigned(dir, ProvenanceName, key)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%s: no in-toto statement: %w", name, err)
	}
	if s.Type != StatementType || s.PredicateType != PredicateType {
		return s, fmt.Errorf("%s: %q with %q, want %q with %q", name, s.Type, s.PredicateType, StatementType, PredicateType)
	}
	said := map[string]string{}
	for _, r := range s.Subject {
		said[r.Name] = r.Digest["sha256"]
	}
	for _, f := range list {
		switch sum, found := said[f.Name]; {
		case f.Name == ProvenanceName: // no file names its own sum
		case !found:
			return s, fmt.Errorf("%s: says nothing of %s, which %s names: %w", name, f.Name, ListName, ErrDiffers)
		case sum != f.SHA256:
			return s, fmt.Errorf("%s: the sum of %s is %s, %s says %s: %w", name, f.Name, sum, ListName, f.SHA256, ErrDiffers)
		}
		delete(said, f.Name)
	}
	for other := range said {
		return s, fmt.Errorf("%s: names %s, %s does not: %w", name, other, ListName, ErrDiffers)
	}
	return s, nil
}
