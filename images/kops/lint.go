// Package kops reads a cluster manifest of kops and names the traps that its
// hooks, fileAssets and sysctlParameters fall into: what kops accepts and then
// does not do. It knows text only; no cluster and no machine.
package kops

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxSize is the most bytes a manifest may have.
const MaxSize = 32 << 20

// Finding is one trap.
type Finding struct {
	Line, Column int
	Trap         string // its name: lower case, stable
	Style        bool   // what kops does with it is right; something else is better
	What         string // what happens
	Do           string // what to write instead
}

// Review is what a manifest holds.
type Review struct {
	Clusters, InstanceGroups, Hooks, Assets, Sysctls int
	Findings                                         []Finding // in the order of the text
}

// Mistake is a place at which the text is not a kops manifest.
type Mistake struct {
	Line, Column int
	What         string
}

func (m Mistake) Error() string { return fmt.Sprintf("%d:%d: %s", m.Line, m.Column, m.What) }

// Lint reads all documents of a text. The error joins Mistakes.
func Lint(text []byte) (Review, error) {
	switch {
	case len(text) > MaxSize:
		return Review{}, Mistake{1, 1, fmt.Sprintf("larger than %d MiB; is this a cluster's manifest?", MaxSize>>20)}
	case len(bytes.TrimSpace(text)) == 0:
		return Review{}, Mistake{1, 1, "empty; write a cluster's manifest with: kops get --name NAME -o yaml"}
	case !utf8.Valid(text):
		return Review{}, badByte(text)
	}
	l := linter{}
	d := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var n yaml.Node
		err := d.Decode(&n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Review{}, syntaxError(text, err)
		}
		l.document(&n)
	}
	if len(l.mistakes) == 0 && l.report.Clusters+l.report.InstanceGroups == 0 {
		l.mistake(&yaml.Node{Line: 1, Column: 1}, "no kops Cluster or InstanceGroup is in here; write one with: kops get --name NAME -o yaml")
	}
	l.acrossDocuments()
	if err := errors.Join(l.mistakes...); err != nil {
		return Review{}, err
	}
	slices.SortStableFunc(l.report.Findings, func(a, b Finding) int { return a.Line - b.Line })
	return l.report, nil
}

type linter struct {
	report   Review
	mistakes []error
	specs    []spec

	timers     []string // units of the hooks that are timers
	apiServers bool     // an InstanceGroup has the role APIServer
}

func (l *linter) mistake(at *yaml.Node, format string, args ...any) {
	l.mistakes = append(l.mistakes, Mistake{at.Line, at.Column, fmt.Sprintf(format, args...)})
}

func (l *linter) find(line, column int, trap, what, do string) {
	style := trap == "unpinned-image" || trap == "two-targets"
	l.report.Findings = append(l.report.Findings, Finding{line, column, trap, style, what, do})
}

func (l *linter) findAt(at *yaml.Node, trap, what, do string) {
	l.find(at.Line, at.Column, trap, what, do)
}

// spec is the part of a document that is looked at.
type spec struct {
	group   bool // of an InstanceGroup
	version string
	hooks   []*yaml.Node
	assets  []*yaml.Node
	sysctls []*yaml.Node
}

func (l *linter) document(n *yaml.Node) {
	root := follow(n)
	if root.Kind == yaml.DocumentNode && len(root.Content) == 1 {
		root = follow(root.Content[0])
	}
	if root.Kind == 0 || root.Tag == "!!null" {
		return // an empty document between two ---
	}
	if root.Kind != yaml.MappingNode {
		l.mistake(root, "not a manifest: it has no apiVersion and kind")
		return
	}
	api, kind := field(root, "apiVersion"), field(root, "kind")
	if api == nil || kind == nil {
		l.mistake(root, "not a manifest: it has no apiVersion and kind")
		return
	}
	group, version, _ := strings.Cut(api.Value, "/")
	if group != "kops.k8s.io" && group != "kops" || kind.Value != "Cluster" && kind.Value != "InstanceGroup" {
		return
	}
	if version != "v1alpha2" && version != "v1alpha3" {
		l.mistake(api, "apiVersion %q: known are kops.k8s.io/v1alpha2 and kops.k8s.io/v1alpha3", api.Value)
		return
	}
	s := spec{group: kind.Value == "InstanceGroup", version: version}
	if s.group {
		l.report.InstanceGroups++
	} else {
		l.report.Clusters++
	}
	body := field(root, "spec")
	if body == nil || body.Kind != yaml.MappingNode {
		l.mistake(root, "the %s has no spec", kind.Value)
		return
	}
	l.apiServers = l.apiServers || s.group && text(body, "role") == "APIServer"
	s.hooks = l.list(body, "hooks", yaml.MappingNode)
	s.assets = l.list(body, "fileAssets", yaml.MappingNode)
	s.sysctls = l.list(body, "sysctlParameters", yaml.ScalarNode)
	l.report.Hooks += len(s.hooks)
	l.report.Assets += len(s.assets)
	l.report.Sysctls += len(s.sysctls)
	l.specs = append(l.specs, s)
}

// syntaxError is yaml's complaint with a position, and the usual cause of the
// most cryptic one.
func syntaxError(text []byte, err error) Mistake {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if i := bytes.IndexByte(line, '\t'); i >= 0 && len(bytes.TrimLeft(line[:i], " ")) == 0 {
			return Mistake{n, i + 1, "a tab in the indentation: YAML takes only spaces there"}
		}
	}
	what := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if rest, ok := strings.CutPrefix(what, "line "); ok {
		number, after, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); err == nil {
			line, what = max(n, 1), after
		}
	}
	return Mistake{line, 1, "not YAML: " + what}
}

func badByte(text []byte) Mistake {
	line, column := 1, 1
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r == utf8.RuneError && size == 1 {
			break
		}
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
		text = text[size:]
	}
	return Mistake{line, column, "the byte here is not UTF-8; is this a YAML file?"}
}
