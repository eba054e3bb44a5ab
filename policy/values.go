package policy

import (
	"fmt"
	"math/big"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"nodegate/policy/kernels"
)

// reader turns expressions into Go values and gathers what is wrong with them. Its
// methods return the zero value for an attribute that is not set, or wrong, or not
// known here; unknown lists the last kind.
type reader struct {
	Options
	diags     hcl.Diagnostics
	vars      map[string]cty.Value // of the variable blocks
	catalogue *kernels.Catalogue   // nil but for Lint
	names     bool                 // compare names with it
	warnings  hcl.Diagnostics
	spent     int      // of maxCost
	stopped   bool     // it is more than that
	unknown   []string // the facts that the block being read needs and that are not known
}

func (r *reader) errorf(rng hcl.Range, summary, detail string, args ...any) {
	if r.stopped {
		return
	}
	r.diags = append(r.diags, &hcl.Diagnostic{
		Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(detail, args...), Subject: rng.Ptr(),
	})
}

// mistaken reports whether a mistake inside the block is reported already: what
// seems to be missing is then most likely what is misspelt.
func (r *reader) hasMistake(b hcl.Body) bool {
	body, ok := b.(*hclsyntax.Body)
	return ok && slices.ContainsFunc(r.diags, func(d *hcl.Diagnostic) bool {
		return d.Subject != nil && d.Subject.Filename == body.SrcRange.Filename && body.SrcRange.ContainsPos(d.Subject.Start)
	})
}

// place returns a range as compilers print it.
func place(r hcl.Range) string {
	return fmt.Sprintf("%s:%d:%d", r.Filename, r.Start.Line, r.Start.Column)
}

// value evaluates an expression. It returns false where there is no value: the
// attribute is not set, wrong, or not known here.
func (r *reader) value(e hcl.Expression) (cty.Value, bool) {
	if e == nil {
		return cty.NilVal, false
	}
	scope, unknown, ok := r.scopeFor(e)
	if !ok {
		return cty.NilVal, false
	}
	v, diags := e.Value(scope)
	r.diags = append(r.diags, diags...)
	switch {
	case diags.HasErrors() || v.IsNull():
		return cty.NilVal, false
	case !v.IsWhollyKnown():
		r.unknown = append(r.unknown, unknown...)
		return cty.NilVal, false
	}
	return v, true
}

func (r *reader) text(e hcl.Expression, name string) string {
	v, ok := r.value(e)
	if !ok {
		return ""
	}
	if v.Type() != cty.String {
		r.errorf(e.Range(), "Wrong type", "%s is a string; this is %s. Write it in quotes.", name, withArticle(v.Type()))
		return ""
	}
	return v.AsString()
}

// command reads a program and its arguments; the program is an absolute path.
func (r *reader) command(e hcl.Expression, name string) []string {
	v, ok := r.value(e)
	if !ok {
		return nil
	}
	list, err := convert.Convert(v, cty.List(cty.String))
	if err != nil || list.IsNull() || !list.IsWhollyKnown() || list.LengthInt() == 0 {
		r.errorf(e.Range(), "Wrong type", "%s is a list of strings, a program and its arguments, for example "+
			"[\"/usr/local/bin/ship\", \"--held\"]; this is none.", name)
		return nil
	}
	var words []string
	for _, w := range list.AsValueSlice() {
		if w.IsNull() {
			r.errorf(e.Range(), "Wrong type", "A word of %s is null; leave it out.", name)
			return nil
		}
		words = append(words, w.AsString())
	}
	if !path.IsAbs(words[0]) {
		r.errorf(e.Range(), "Not an absolute path", "Name the program of %s by its whole path; %q is not one.", name, words[0])
	}
	return words
}

func (r *reader) flag(e hcl.Expression, name string, unset bool) bool {
	v, ok := r.value(e)
	if !ok {
		return unset
	}
	if v.Type() != cty.Bool {
		r.errorf(e.Range(), "Wrong type", "%s is true or false, without quotes; this is %s.", name, withArticle(v.Type()))
		return unset
	}
	return v.True()
}

// integer reads a whole number that fits int64.
func (r *reader) integer(e hcl.Expression, name string) (int64, bool) {
	v, ok := r.value(e)
	if !ok {
		return 0, false
	}
	if v.Type() == cty.Number {
		if n, acc := v.AsBigFloat().Int64(); acc == big.Exact {
			return n, true
		}
		r.errorf(e.Range(), "Wrong value", "%s is a whole number of at most 64 bits.", name)
		return 0, false
	}
	r.errorf(e.Range(), "Wrong type", "%s is a number; this is %s.", name, withArticle(v.Type()))
	return 0, false
}

// parameter reads what a kernel parameter can be set to: a number, or a string whose
// white space is folded, as the kernel's own tabs are when it is read.
func (r *reader) parameter(v cty.Value, rng hcl.Range, name string) (string, bool) {
	switch {
	case v.IsNull() || !v.IsKnown():
		r.errorf(rng, "Wrong value", "%s has no value.", name)
		return "", false
	case v.Type() == cty.Number:
		f := v.AsBigFloat()
		if !f.IsInt() || f.MantExp(nil) > 64 {
			r.errorf(rng, "Wrong value", "Kernel parameters are whole numbers of at most 64 bits, or text; write %s as one of these.", name)
			return "", false
		}
		return f.Text('f', 0), true
	case v.Type() == cty.String:
		s := strings.Join(strings.Fields(v.AsString()), " ")
		if r.catalogue != nil && strings.Contains(strings.TrimSpace(v.AsString()), "\n") { // a node goes on with what it has
			r.errorf(rng, "Wrong value", "%s has several lines; a kernel parameter is one line: %q.", name, s)
			return "", false
		}
		if s == "" || len(s) > 4000 || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			r.errorf(rng, "Wrong value", "%s must be text of 1 to 4000 bytes without control characters.", name)
			return "", false
		}
		return s, true
	case v.Type() == cty.Bool:
		r.errorf(rng, "Wrong type", "Kernel parameters are numbers or text: write 1 for true, 0 for false.")
		return "", false
	}
	r.errorf(rng, "Wrong type", "%s is a number or a string; this is %s.", name, withArticle(v.Type()))
	return "", false
}

func (r *reader) duration(e hcl.Expression, name string, unset, least, most time.Duration) time.Duration {
	s := r.text(e, name)
	if s == "" {
		return unset
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		r.errorf(e.Range(), "Wrong value", "%s is a duration such as %q; %q is not.", name, unset, s)
		return unset
	}
	if d < least || d > most {
		r.errorf(e.Range(), "Out of range", "%s must be between %s and %s; this is %s.", name, least, most, s)
		return unset
	}
	return d
}

// oneOf reads a word of a closed list; the first is the default.
func (r *reader) oneOf(e hcl.Expression, name string, words ...string) string {
	s := r.text(e, name)
	if s == "" {
		return words[0]
	}
	if !slices.Contains(words, s) {
		said := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "" })
		none := "neither"
		if len(said) > 2 {
			none = "none of them"
		}
		r.errorf(e.Range(), "Wrong value", "%s is %s; %q is %s.%s", name, strings.Join(quoted(said), " or "), s, none, didYouMean(s, said))
		return words[0]
	}
	return s
}

// metadata reads what every requirement says about itself.
func (r *reader) decodeMetadata(b block) Metadata {
	off := !r.flag(b.get("when"), "when", true)
	whenUnknown := r.unknowns() // nothing else of the block was read yet
	a := Metadata{
		Off: off, WhenUnknown: whenUnknown,
		Severity: Severity(r.oneOf(b.get("severity"), "severity", string(Block), string(Warn))),
		Reason:   r.text(b.get("reason"), "reason"),
		Ref:      r.text(b.get("ref"), "ref"),
		Symptom:  r.text(b.get("symptom"), "symptom"),
		TradeOff: r.text(b.get("tradeoff"), "tradeoff"),
		Drift:    r.decodeDrift(b),
		Range:    b.Range, Override: b.Override, Builtin: b.Builtin,
	}
	if e := b.get("when"); a.Off {
		a.When = place(e.Range())
	}
	return a
}

// drift returns what the block says about a requirement that begins to fail, ""
// where it says nothing. A check only inspects, and has nothing to correct.
func (r *reader) decodeDrift(b block) Drift {
	words := []string{"", string(Correct), string(Report), string(Ignore)}
	if b.Type == "check" {
		words = []string{"", string(Report), string(Ignore)}
	}
	return Drift(r.oneOf(b.get("drift"), "drift", words...))
}

func quoted(words []string) []string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = fmt.Sprintf("%q", w)
	}
	return q
}

// withArticle returns a type's name with its article, for a sentence.
func withArticle(t cty.Type) string {
	switch {
	case t == cty.String:
		return "a string"
	case t == cty.Number:
		return "a number"
	case t == cty.Bool:
		return "true or false"
	case t.IsTupleType() || t.IsListType() || t.IsSetType():
		return "a list"
	case t.IsObjectType() || t.IsMapType():
		return "a map"
	}
	return t.FriendlyName()
}
