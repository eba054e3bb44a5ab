package policy

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"
)

// Options is what a policy's meaning depends on besides its text.
type Options struct {
	// Checks is the names that a check block may have.
	Checks []string
	// Fact returns the fact of that name, "node.cpus": a string, an int64, or a list
	// of strings. False means that it cannot be known here, and that what depends on
	// it is unknown. With nil, no fact can.
	Fact func(name string) (any, bool)
	// Vars are the values given for variables, by name, as text. One that the policy
	// does not declare is a mistake.
	Vars map[string]string
	// VarsAt is where the values of Vars are written, if not on the command line.
	VarsAt map[string]hcl.Range
	// Env are such values from the environment: Vars take precedence, and one that
	// is not declared belongs to another program.
	Env map[string]string
}

// Load reads all files as one policy. The diagnostics contain every mistake in every
// file; without an error among them the policy is complete.
func Load(files []File, o Options) (*Policy, hcl.Diagnostics) {
	l := read(files, o)
	l.evaluate()
	return l.policy, l.diags
}

// Source is a policy that is read once, and evaluated for many nodes.
type Source struct{ *loader }

// Read reads all files as one policy.
func Read(files []File, o Options) Source { return Source{read(files, o)} }

// For returns the policy as Load does, on a node with these facts. It may be called at
// the same time as others.
func (s Source) For(fact func(name string) (any, bool)) (*Policy, hcl.Diagnostics) {
	node := s.forNode(fact)
	node.policy.Files = s.policy.Files
	node.evaluate()
	return node.policy, append(slices.Clone(s.diags), node.diags...)
}

// node returns a loader of the same blocks, for a node with these facts.
func (l *loader) forNode(fact func(name string) (any, bool)) *loader {
	node := &loader{reader: &reader{Options: l.Options, vars: l.vars, catalogue: l.catalogue}, blocks: l.blocks, policy: &Policy{}}
	node.Fact = fact
	return node
}

// read gathers the blocks of all files, with their overrides, and the variables.
func read(files []File, o Options) *loader {
	l := &loader{reader: &reader{Options: o}, used: map[string]bool{}, policy: &Policy{}}
	for _, f := range files {
		l.parse(f, false)
	}
	l.readVariables()
	l.applyOverrides()
	return l
}

// evaluate makes the policy of the blocks.
func (l *loader) evaluate() {
	l.decode()
	l.policy.mergeDuplicates(l.reader)
	l.policy.inferModules()
	l.policy.setDefaultDrift()
}

// loader gathers the blocks of all files before it evaluates them: any file may
// contain a variable or an override.
type loader struct {
	*reader
	used   map[string]bool // built-in policies already in
	blocks []block
	policy *Policy
	size   int // of the files so far, without the built-in ones
}

// parse reads a file's blocks, and after them those of the built-in policies that it
// uses.
func (l *loader) parse(f File, builtin bool) {
	at := hcl.Range{Filename: f.Name, Start: hcl.InitialPos, End: hcl.InitialPos}
	if !builtin {
		l.size += len(f.Text)
	}
	switch {
	case len(f.Text) > MaxFileSize:
		l.errorf(at, "File too large", "A policy file has at most %d KiB; this one is larger.", MaxFileSize>>10)
		return
	case l.size > MaxFileSize:
		l.errorf(at, "Policy too large", "All files of a policy have at most %d KiB together; with this one it is more.", MaxFileSize>>10)
		return
	case len(bytes.TrimSpace(f.Text)) == 0:
		l.errorf(at, "Empty file", "A policy asks for something; start with: use \"kubernetes\" {}")
		return
	case !utf8.Valid(f.Text):
		l.errorf(badByte(f), "Not UTF-8", "A policy file is UTF-8 text; the byte here is not. Is this an HCL file?")
		return
	}
	if !f.own { // the scanner takes a tenth of a check
		if diags := checkDepth(f); diags.HasErrors() {
			l.diags = append(l.diags, diags...)
			return
		}
	}
	parse := hclsyntax.ParseConfig
	if strings.HasSuffix(f.Name, ".json") {
		parse = func(text []byte, name string, _ hcl.Pos) (*hcl.File, hcl.Diagnostics) { return json.Parse(text, name) }
	}
	syntax, diags := parse(f.Text, f.Name, hcl.InitialPos)
	l.diags = append(l.diags, diags...)
	if diags.HasErrors() {
		return
	}
	content, diags := syntax.Body.Content(fileSchema())
	l.diags = append(l.diags, diags...)
	l.policy.Files = append(l.policy.Files, f.Name)
	for _, b := range content.Blocks {
		opened := l.openBlock(b)
		opened.Builtin = builtin
		if b.Type == "use" {
			l.useBuiltin(opened)
			continue
		}
		l.blocks = append(l.blocks, opened)
	}
}

func (l *loader) useBuiltin(b block) {
	f, err := Builtin(b.Name)
	switch {
	case err != nil:
		l.errorf(b.Range, "Unknown policy", "%s.%s", capitalize(err.Error()), didYouMean(b.Name, Builtins()))
	case !l.used[b.Name]:
		l.used[b.Name] = true
		l.parse(f, true)
	}
}

// badByte returns the position of the first byte that is not UTF-8.
func badByte(f File) hcl.Range {
	pos := hcl.InitialPos
	for rest := f.Text; len(rest) > 0; {
		c, size := utf8.DecodeRune(rest)
		if c == utf8.RuneError && size == 1 {
			break
		}
		if c == '\n' {
			pos.Line, pos.Column = pos.Line+1, 0
		}
		pos.Column++
		pos.Byte += size
		rest = rest[size:]
	}
	return hcl.Range{Filename: f.Name, Start: pos, End: pos}
}

func capitalize(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
