package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// buildType names the steps of this command. What they depend on is all in the statement.
const buildType = "urn:nodegate:make-dist:v1"

// provenanceName is the file that describes how the release was made. Its own signature is beside it.
const provenanceName = "nodegate.provenance.json"

// The types of the statement: https://in-toto.io/Statement/v1 and https://slsa.dev/provenance/v1.
const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
)

// statement is an in-toto statement with a SLSA predicate.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     struct {
		BuildDefinition struct {
			BuildType            string            `json:"buildType"`
			ExternalParameters   map[string]string `json:"externalParameters"`
			ResolvedDependencies []resource        `json:"resolvedDependencies"`
		} `json:"buildDefinition"`
		RunDetails struct {
			Builder struct {
				ID string `json:"id"`
			} `json:"builder"`
		} `json:"runDetails"`
	} `json:"predicate"`
}

// resource is a file or a source, with its digests by algorithm.
type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

// provenance writes what was made so far, from which commit, with which Go and modules. It
// names no time and no run: two that make the same release write the same statement.
func (r release) provenance() error {
	s := statement{Type: statementType, PredicateType: predicateType}
	files, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(r.dir, f.Name()))
		if err != nil {
			return err
		}
		s.Subject = append(s.Subject, resource{Name: f.Name(), Digest: map[string]string{"sha256": sha256Of(content)}})
	}
	definition := &s.Predicate.BuildDefinition
	definition.BuildType = buildType
	definition.ExternalParameters = map[string]string{"VERSION": r.version, "SOURCE_DATE_EPOCH": fmt.Sprint(r.time.Unix())}
	if r.commit != "" {
		definition.ResolvedDependencies = append(definition.ResolvedDependencies,
			resource{Name: "nodegate", Digest: map[string]string{"gitCommit": r.commit}})
	}
	modules, err := r.modules()
	if err != nil {
		return err
	}
	definition.ResolvedDependencies = append(definition.ResolvedDependencies, modules...)
	s.Predicate.RunDetails.Builder.ID = cmp.Or(os.Getenv("NODEGATE_BUILDER"), "urn:nodegate:builder:unnamed")
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return put(filepath.Join(r.dir, provenanceName), append(text, '\n'), 0o644)
}

// modules are Go and the modules that are in the program, with the sums that go.sum has for them.
func (r release) modules() ([]resource, error) {
	info, err := buildinfo.ReadFile(r.binary(architectures()[0]))
	if err != nil {
		return nil, err
	}
	all := []resource{{Name: "go", URI: "pkg:generic/go@" + strings.TrimPrefix(info.GoVersion, "go")}}
	for _, m := range info.Deps {
		sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
		if err != nil {
			return nil, fmt.Errorf("%s %s: its sum %q: %w", m.Path, m.Version, m.Sum, err)
		}
		all = append(all, resource{URI: "pkg:golang/" + m.Path + "@" + m.Version,
			Digest: map[string]string{"dirHash1": hex.EncodeToString(sum)}})
	}
	return all, nil
}

// sourceCommit returns the commit of the sources, or "" if this is not a git checkout or has changes.
func sourceCommit() string {
	if commit := os.Getenv("SOURCE_COMMIT"); commit != "" {
		return commit
	}
	changes, err := exec.Command("git", "status", "--porcelain").Output()
	if err != nil || len(changes) > 0 {
		fmt.Println("the provenance names no commit: the sources are no git checkout without changes, and SOURCE_COMMIT is not set")
		return ""
	}
	commit, _ := exec.Command("git", "rev-parse", "HEAD").Output()
	return string(bytes.TrimSpace(commit))
}
