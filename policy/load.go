package policy

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

//go:embed builtin/*.hcl
var builtin embed.FS

// File is one policy file's name and text.
type File struct {
	Name string
	Text []byte
}

// MaxFileSize is the most bytes a policy file may have. Policies are written by
// people; what is larger is not one.
const MaxFileSize = 1 << 20

// Builtins are the names that Builtin knows.
func Builtins() []string {
	entries, err := fs.ReadDir(builtin, "builtin")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".hcl"))
	}
	return names
}

// Builtin is the embedded policy of that name.
// The error says which names there are.
func Builtin(name string) (File, error) {
	text, err := builtin.ReadFile("builtin/" + path.Clean("/" + name)[1:] + ".hcl")
	if err != nil {
		return File{}, fmt.Errorf("there is no built-in policy %q; there is %s", name, strings.Join(Builtins(), ", "))
	}
	return File{Name: "builtin:" + name + ".hcl", Text: text}, nil
}

// Options is what a policy's meaning depends on beside its text.
type Options struct {
	Checks []string // the names that a check block may have
}

// Load reads all files as one policy. Every mistake in every file is in the
// diagnostics; the policy is complete only when they hold no error.
func Load(files []File, o Options) (*Policy, hcl.Diagnostics) {
	l := &loader{reader: newReader(o), seen: map[string]bool{}, policy: &Policy{}}
	for _, f := range files {
		l.add(f, false)
	}
	if l.policy.Gate.Unit == "" {
		l.policy.Gate = defaultGate()
	}
	l.policy.check(l.reader)
	l.policy.inferModules()
	return l.policy, l.diags
}

type loader struct {
	*reader
	seen        map[string]bool // built-in policies already in
	policy      *Policy
	builtinGate bool // the policy's gate is that of a built-in policy
}

// add reads a file, and after it the built-in policies that it uses.
func (l *loader) add(f File, builtin bool) {
	at := hcl.Range{Filename: f.Name, Start: hcl.InitialPos, End: hcl.InitialPos}
	switch {
	case len(f.Text) > MaxFileSize:
		l.errorf(at, "File too large", "A policy file has at most %d KiB; this one is larger.", MaxFileSize>>10)
		return
	case len(bytes.TrimSpace(f.Text)) == 0:
		l.errorf(at, "Empty file", "A policy asks for something; start with: use \"kubernetes\" {}")
		return
	case !utf8.Valid(f.Text):
		l.errorf(badByte(f), "Not UTF-8", "A policy file is UTF-8 text; the byte here is none. Is this an HCL file?")
		return
	}
	syntax, diags := hclsyntax.ParseConfig(f.Text, f.Name, hcl.InitialPos)
	l.diags = append(l.diags, diags...)
	if diags.HasErrors() {
		return
	}
	content, diags := syntax.Body.Content(fileSchema())
	l.diags = append(l.diags, diags...)
	l.policy.Files = append(l.policy.Files, f.Name)
	p, uses := l.decode(content.Blocks)
	l.merge(p, builtin)
	for _, u := range uses {
		b, err := Builtin(u.Name)
		switch {
		case err != nil:
			l.errorf(u.Range, "Unknown policy", "%s.%s", capital(err.Error()), didYouMean(u.Name, Builtins()))
		case !l.seen[u.Name]:
			l.seen[u.Name] = true
			l.add(b, true)
		}
	}
}

// merge adds the requirements of one file. A gate of the author's own comes
// before that of a built-in policy.
func (l *loader) merge(p *Policy, builtin bool) {
	all := l.policy
	all.Modules = append(all.Modules, p.Modules...)
	all.Sysctls = append(all.Sysctls, p.Sysctls...)
	all.Links = append(all.Links, p.Links...)
	all.Judgements = append(all.Judgements, p.Judgements...)
	switch {
	case p.Gate.Unit == "" || builtin && all.Gate.Unit != "":
	case all.Gate.Unit == "" || l.builtinGate:
		all.Gate, l.builtinGate = p.Gate, builtin
	default:
		l.secondGate(p.Gate.Range, all.Gate)
	}
}

// badByte is where the first byte that is not UTF-8 stands.
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

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
