package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Options holds the inputs of a policy other than its files.
type Options struct {
	// Checks lists the names that a check block may have.
	Checks []string
	// AtBoot lists the names of Checks that the gate inspects.
	AtBoot []string
	// Renamed maps the former name of a check to the name in Checks that replaced it.
	Renamed map[string]string
	// Dropped maps the name of a check that has gone to the reason.
	Dropped map[string]string
	// Fact returns the fact of a name such as "node.cpus": a string, an int64, or a list of strings. False means that the fact is unknown
	// here, and that every value that depends on it is unknown. If Fact is nil, all facts are unknown.
	Fact func(name string) (any, bool)
	// Version is nodegate's, for required_version; "" satisfies every policy.
	Version string
	// Vars holds the given values of variables, by name. A name that the policy does not declare is a mistake.
	Vars map[string]string
	// VarsAt holds the positions of the values in Vars that come from a file.
	VarsAt map[string]hcl.Range
	// Env holds values of variables from the environment. Vars take precedence. A name that the
	// policy does not declare is ignored: it belongs to another program.
	Env map[string]string
}

// Load reads all files as one policy. The diagnostics contain every mistake in every
// file; without an error among them the policy is complete.
func Load(files []File, o Options) (*Policy, hcl.Diagnostics) {
	l := read(files, o)
	l.evaluate()
	return l.policy, l.diags
}

// Source is a policy that is read once and evaluated for many nodes.
type Source struct{ *loader }

// Read reads all files as one policy.
func Read(files []File, o Options) Source { return Source{read(files, o)} }

// For returns the policy for a node with these facts, as Load does. It is safe for concurrent use.
func (s Source) For(fact func(name string) (any, bool)) (*Policy, hcl.Diagnostics) {
	node := s.forNode(fact)
	node.evaluate()
	return node.policy, node.diags
}

// Stanzas returns the blocks of all files, as the overrides change them.
func (s Source) Stanzas() []Stanza { return s.blocks }

// Unmerged returns the requirements of blocks for a node with these facts, before they are merged, and all mistakes in them. The policy is
// nil if evaluating it costs too much. The first call must be for all blocks; it counts the cost. It is not safe for concurrent use.
func (s Source) Unmerged(blocks []Stanza, fact func(name string) (any, bool)) (*Policy, hcl.Diagnostics) {
	node := s.forNode(fact)
	node.blocks = blocks
	if node.paid = s.words.named != nil; !node.paid {
		s.words.named = map[hcl.Expression][]string{}
	}
	node.decode()
	if s.stopped || node.stopped {
		return nil, node.diags
	}
	return node.policy, node.diags
}

// Value returns the value of an expression on a node with these facts. It returns false if the value is wrong or unknown.
func (s Source) Value(e hcl.Expression, fact func(name string) (any, bool)) (cty.Value, bool, hcl.Diagnostics) {
	node := s.forNode(fact)
	v, known := node.value(e)
	return v, known, node.diags[len(s.diags):]
}

// Scope returns the functions, variables and facts that an expression can name, with all facts unknown. It returns false if the expression
// names something else, which is a mistake that Unmerged returns.
func (s Source) Scope(e hcl.Expression) (*hcl.EvalContext, bool) {
	scope, _, ok := s.forNode(nil).scopeFor(e)
	return scope, ok
}

// forNode returns a loader of the same blocks for a node with these facts.
func (l *loader) forNode(fact func(name string) (any, bool)) *loader {
	p := &Policy{Files: l.policy.Files, Digest: l.policy.Digest, Version: l.policy.Version}
	node := &loader{reader: l.fresh(), blocks: l.blocks, policy: p}
	node.Fact, node.diags = fact, slices.Clone(l.diags)
	return node
}

// read gathers the blocks of all files, with their overrides, and the variables.
func read(files []File, o Options) *loader {
	l := &loader{reader: &reader{Options: o, words: newVocabulary()}, used: map[string]bool{}, policy: &Policy{Version: o.Version}}
	for _, f := range files {
		if !l.stopped {
			l.parse(f, 0)
		}
	}
	l.addText(fmt.Append(nil, o.Vars, o.Env)) // in the order of the names
	l.policy.Digest = hex.EncodeToString(l.sum[:6])
	l.rankBases(files)
	l.readVariables()
	l.applyOverrides()
	return l
}

// evaluate builds the policy from the blocks.
func (l *loader) evaluate() {
	l.decode()
	if diags := l.policy.Merge(); !l.stopped {
		l.diags = append(l.diags, diags...)
	}
}

// Merge merges the requirements of one name, adds those that follow from others, and returns the contradictions.
func (p *Policy) Merge() hcl.Diagnostics {
	r := &reader{}
	p.mergeDuplicates(r)
	p.inferModules()
	p.setDefaultDrift()
	return r.diags
}

// loader gathers the blocks of all files before it evaluates them: any file may contain a variable or an override.
type loader struct {
	*reader
	used   map[string]bool // built-in policies that are read already
	blocks []Stanza
	policy *Policy
	sum    [sha256.Size]byte // of all texts so far
	size   int               // bytes of the files so far, without the built-in ones
	bases  []Stanza          // use blocks that name a file
}

// parse reads the blocks of a file, and the blocks of the built-in policies that it uses.
func (l *loader) parse(f File, rank int) {
	at := hcl.Range{Filename: f.Name, Start: hcl.InitialPos, End: hcl.InitialPos}
	if rank != OfBuiltin {
		l.size += len(f.Text)
	}
	switch {
	case len(f.Text) > MaxFileSize:
		l.errorf(at, "File too large", "A policy file can have at most %d KiB; this one is larger.", MaxFileSize>>10)
		return
	case l.size > MaxFileSize:
		l.errorf(at, "Policy too large", "All files of a policy together can have at most %d KiB; with this one they have more.", MaxFileSize>>10)
		return
	case len(bytes.TrimSpace(f.Text)) == 0:
		l.errorf(at, "Empty file", "A policy must require something; start with: use \"kubernetes\" {}")
		return
	case !utf8.Valid(f.Text):
		mend := "From UTF-16: iconv -f UTF-16 -t UTF-8"
		if bytes.HasPrefix(f.Text, []byte("\x1f\x8b")) {
			mend = "The file is compressed: unpack it with gunzip"
		}
		l.errorf(badByte(f), "Not UTF-8", "A policy file must be UTF-8 text; this byte is not. %s", mend)
		return
	}
	if !f.own { // scanning takes a tenth of the time of `nodegate check`
		if diags := checkDepth(f); diags.HasErrors() {
			l.diags = append(l.diags, diags...)
			return
		}
	}
	syntax, diags := hclsyntax.ParseConfig(f.Text, f.Name, hcl.InitialPos)
	if diags.HasErrors() {
		l.diags = append(l.diags, mendSyntax(f.Text, diags)...)
		return
	}
	content, diags := syntax.Body.Content(fileSchema())
	if !l.hasVersion(content.Attributes["required_version"]) {
		return
	}
	l.diags = append(l.diags, mendUnknown(diags, "", "", fileSchema(), f.Text)...)
	l.policy.Files = append(l.policy.Files, f.Name)
	l.addText(f.Text)
	for _, b := range content.Blocks {
		opened := l.openBlock(b, f.Text)
		if opened.Rank = rank; l.isDropped(opened) {
			continue
		}
		if b.Type == "use" {
			l.useBuiltin(opened)
			continue
		}
		if b.Type == "sysctls" {
			l.blocks = append(l.blocks, l.each(opened, f.Text)...)
			continue
		}
		l.blocks = append(l.blocks, opened)
	}
}

func (l *loader) addText(text []byte) { l.sum = sha256.Sum256(append(l.sum[:], text...)) }

func (l *loader) useBuiltin(b Stanza) {
	f, err := Builtin(b.Name)
	switch {
	case strings.HasPrefix(b.Name, "./"):
		l.bases = append(l.bases, b)
	case err != nil && IsPolicyFile(path.Base(b.Name)):
		l.errorf(b.Range, "Not a file of this directory", "A base is beside the file that uses it. Write: use %q {}", "./"+path.Base(b.Name))
	case err != nil:
		l.errorf(b.Range, "Unknown policy", "There is no built-in policy %q. Known policies: %s.%s",
			b.Name, strings.Join(Builtins(), ", "), DidYouMean(b.Name, Builtins()))
	case !l.used[b.Name]:
		l.used[b.Name] = true
		l.parse(f, OfBuiltin)
	}
}

// badByte returns the position of the first byte that is not UTF-8.
func badByte(f File) hcl.Range {
	at := 0
	for at < len(f.Text) {
		c, size := utf8.DecodeRune(f.Text[at:])
		if c == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	line := f.Text[bytes.LastIndexByte(f.Text[:at], '\n')+1 : at]
	pos := hcl.Pos{Line: bytes.Count(f.Text[:at], []byte("\n")) + 1, Column: utf8.RuneCount(line) + 1, Byte: at}
	return hcl.Range{Filename: f.Name, Start: pos, End: pos}
}
