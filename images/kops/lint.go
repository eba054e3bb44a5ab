// Package kops reads a kops cluster manifest and reports traps in its hooks, fileAssets and
// sysctlParameters: entries that kops accepts but that do not work as written. It reads only the
// manifest, never a cluster or a machine.
package kops

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"nodegate/internal/sorted"
)

// MaxSize limits a manifest, in bytes.
const MaxSize = 32 << 20

// maxEntries limits the lines and entries of a manifest, and its traps, which aliases can repeat. The YAML
// parser needs up to 700 bytes for an entry of two bytes: 8 GiB for a manifest of 28 MiB. A cluster of 300
// InstanceGroups has about 40,000.
const maxEntries = 250_000

// Finding is one trap.
type Finding struct {
	Line, Column int
	Trap         string // its name: lower case, stable
	What         string // the consequence
	Do           string // the remedy
}

// Review counts the entries of a manifest and lists its findings.
type Review struct {
	Clusters, InstanceGroups, Hooks, Assets, Sysctls int
	Findings                                         []Finding // in the order of the lines
}

// Mistake is a position at which the text is not a valid kops manifest.
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
		return Review{}, Mistake{1, 1, "the file is empty; run `kops get --name NAME -o yaml` to write a manifest"}
	case !utf8.Valid(text):
		return Review{}, badByte(text)
	}
	if line, more := countEntries(text); more {
		return Review{}, Mistake{line, 1, fmt.Sprintf("more than %d lines and entries; is this a cluster's manifest?", maxEntries)}
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
		l.readDocument(&n)
	}
	if len(l.mistakes) == 0 && l.report.Clusters+l.report.InstanceGroups == 0 {
		l.addMistake(&yaml.Node{Line: 1, Column: 1}, "no kops Cluster or InstanceGroup found; run `kops get --name NAME -o yaml` to write one")
	}
	l.checkDocuments()
	if err := errors.Join(l.mistakes...); err != nil {
		return Review{}, err
	}
	sorted.By(l.report.Findings, func(a, b Finding) int { return a.Line - b.Line })
	return l.report, nil
}

type linter struct {
	report   Review
	mistakes []error
	specs    []spec

	timers []string // timer units among the hooks
}

func (l *linter) addMistake(at *yaml.Node, format string, args ...any) {
	l.mistakes = append(l.mistakes, Mistake{at.Line, at.Column, fmt.Sprintf(format, args...)})
}

func (l *linter) addFinding(line, column int, trap, what, do string) {
	if len(l.report.Findings) == maxEntries {
		if len(l.mistakes) == 0 {
			l.addMistake(&yaml.Node{Line: line, Column: column}, "more than %d traps; remove the aliases that repeat them", maxEntries)
		}
		return
	}
	l.report.Findings = append(l.report.Findings, Finding{line, column, trap, what, do})
}

func (l *linter) addFindingAt(at *yaml.Node, trap, what, do string) {
	l.addFinding(at.Line, at.Column, trap, what, do)
}

// spec is the part of a document that the linter checks.
type spec struct {
	group   bool // an InstanceGroup, not a Cluster
	hooks   []*yaml.Node
	assets  []*yaml.Node
	sysctls []*yaml.Node
}

const noManifest = "not a manifest: apiVersion and kind are missing; a fragment belongs below spec of a Cluster or InstanceGroup, " +
	"and a policy is checked without --kops"

func (l *linter) readDocument(n *yaml.Node) {
	root := resolveAlias(n)
	if root.Kind == yaml.DocumentNode && len(root.Content) == 1 {
		root = resolveAlias(root.Content[0])
	}
	if root.Kind == 0 || root.Tag == "!!null" {
		return // an empty document between two ---
	}
	if root.Kind != yaml.MappingNode {
		l.addMistake(root, noManifest)
		return
	}
	api, kind := field(root, "apiVersion"), field(root, "kind")
	if api == nil || kind == nil {
		l.addMistake(root, noManifest)
		return
	}
	group, version, _ := strings.Cut(api.Value, "/")
	if group != "kops.k8s.io" && group != "kops" || kind.Value != "Cluster" && kind.Value != "InstanceGroup" {
		return
	}
	if version != "v1alpha2" && version != "v1alpha3" {
		l.addMistake(api, "unknown apiVersion %q; known versions: kops.k8s.io/v1alpha2, kops.k8s.io/v1alpha3", api.Value)
		return
	}
	s := spec{group: kind.Value == "InstanceGroup"}
	if s.group {
		l.report.InstanceGroups++
	} else {
		l.report.Clusters++
	}
	body := field(root, "spec")
	if body == nil || body.Kind != yaml.MappingNode {
		l.addMistake(root, "the spec of this %s is missing", kind.Value)
		return
	}
	s.hooks = l.listField(body, "hooks", yaml.MappingNode)
	s.assets = l.listField(body, "fileAssets", yaml.MappingNode)
	s.sysctls = l.listField(body, "sysctlParameters", yaml.ScalarNode)
	l.report.Hooks += len(s.hooks)
	l.report.Assets += len(s.assets)
	l.report.Sysctls += len(s.sysctls)
	l.specs = append(l.specs, s)
}

// syntaxError adds a position to an error of the YAML parser. It names the usual cause of the most
// cryptic one: a tab.
func syntaxError(text []byte, err error) Mistake {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if i := bytes.IndexByte(line, '\t'); i >= 0 && len(bytes.TrimLeft(line[:i], " ")) == 0 {
			return Mistake{n, i + 1, "a tab in the indentation: YAML allows only spaces there"}
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

// countEntries returns the line at which a text has more than maxEntries lines and entries. It counts the
// characters that begin or separate entries, in scripts too, so the parser creates at most three nodes for each.
func countEntries(text []byte) (line int, more bool) {
	line = 1
	n := 0
	for i, b := range text {
		switch b {
		case '\n':
			line++
			n++
		case ',', '[', '{':
			n++
		case ':', '-', '?':
			if i+1 < len(text) && strings.IndexByte(" \t\r\n", text[i+1]) >= 0 {
				n++
			}
		}
		if n > maxEntries {
			return line, true
		}
	}
	return line, false
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
	return Mistake{line, column, "this byte is not UTF-8; is this a YAML file?"}
}
