package policy

import (
	"fmt"
	"maps"
	"math/big"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// reader turns expressions into Go values and collects their mistakes. Its methods return the zero value for an attribute that is not set,
// wrong, or unknown. The field unknown lists the facts that make attributes unknown.
type reader struct {
	Options
	diags   hcl.Diagnostics
	words   *vocabulary
	vars    map[string]cty.Value // values of the variable blocks
	spent   int                  // cost of the expressions so far, at most maxCost
	stopped bool                 // the cost exceeds maxCost
	paid    bool                 // the cost of each expression is known to be affordable: it does not depend on the node
	unknown []string             // unknown facts that the current block needs
	scope   *hcl.EvalContext     // of a node of Unmerged
}

// fresh returns a reader of the same policy that has read nothing yet.
func (r *reader) fresh() *reader {
	return &reader{Options: r.Options, words: r.words, vars: r.vars}
}

func (r *reader) errorf(rng hcl.Range, summary, detail string, args ...any) {
	if r.stopped {
		return
	}
	r.diags = append(r.diags, &hcl.Diagnostic{
		Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(detail, args...), Subject: rng.Ptr(),
	})
}

// hasMistake reports whether a mistake inside the block is reported already. An attribute that
// seems to be missing is then most likely misspelt.
func (r *reader) hasMistake(b hcl.Body) bool {
	body, ok := b.(*hclsyntax.Body)
	return ok && slices.ContainsFunc(r.diags, func(d *hcl.Diagnostic) bool {
		return d.Subject != nil && d.Subject.Filename == body.SrcRange.Filename && body.SrcRange.ContainsPos(d.Subject.Start)
	})
}

// Place returns a range as compilers print it.
func Place(r hcl.Range) string {
	return fmt.Sprintf("%s:%d:%d", r.Filename, r.Start.Line, r.Start.Column)
}

// value evaluates an expression. It returns false if the attribute is not set, wrong, or unknown.
func (r *reader) value(e hcl.Expression) (cty.Value, bool) {
	if e == nil {
		return cty.NilVal, false
	}
	scope, unknown, ok := r.scopeFor(e)
	if !ok {
		return cty.NilVal, false
	}
	v, diags := e.Value(scope)
	r.mendValues(diags)
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

// mendValues completes HCL's messages about an operand and a function.
func (r *reader) mendValues(diags hcl.Diagnostics) {
	for _, d := range diags {
		switch {
		case d.Summary == "Call to unknown function" && strings.Contains(d.Detail, "ver"):
			d.Detail += ` Write: version_at_least(kernel.version, "5.4")`
		case d.Summary == "Call to unknown function" && strings.Contains(d.Detail, `"not"`):
			d.Detail += " Write ! for not."
		case d.Summary == "Call to unknown function":
			d.Detail += " There are " + strings.Join(slices.Sorted(maps.Keys(r.words.plain)), ", ") + "."
		case d.Summary == "Invalid operand" && d.Expression != nil:
			if v, wrong := d.Expression.Value(d.EvalContext); !wrong.HasErrors() && v.IsKnown() && !v.IsNull() && v.Type() == cty.String {
				d.Detail += BytesOf(v.AsString(), "")
				if strings.Contains(d.Detail, "bool is required") {
					d.Detail += fmt.Sprintf(" Write the fact again, FACT == %q, or a list: contains([..., %[1]q], FACT).", v.AsString())
				}
			}
		}
	}
}

func (r *reader) text(e hcl.Expression, name string) string {
	return r.textOf(e, name, inQuotes(e, ""))
}

// textOf reads a string. The remedy is for a value of another type.
func (r *reader) textOf(e hcl.Expression, name, remedy string) string {
	v, ok := r.value(e)
	if !ok {
		return ""
	}
	if v.Type() != cty.String {
		r.errorf(e.Range(), "Wrong type", "%s must be a string; this is %s. %s", name, WithArticle(v.Type()), remedy)
		return ""
	}
	return v.AsString()
}

// command reads the absolute path of a program and its arguments.
func (r *reader) command(e hcl.Expression, name string) []string {
	v, ok := r.value(e)
	if !ok {
		return nil
	}
	words := stringsOf(v)
	if words == nil {
		like := map[string]string{"on_held": "ship\", \"--held\"", "command": "check-gpu\", \"--all\""}[name]
		r.errorf(e.Range(), "Wrong type", "%s must be a list of strings, a program and its arguments: %[1]s = [\"/usr/local/bin/%s].", name, like)
		return nil
	}
	if !path.IsAbs(words[0]) {
		r.errorf(e.Range(), "Not an absolute path", "Write the absolute path of the program in %s; %q is not absolute.", name, words[0])
	}
	return words
}

func (r *reader) flag(e hcl.Expression, name string, unset bool) bool {
	v, ok := r.value(e)
	if !ok {
		return unset
	}
	if v.Type() != cty.Bool {
		r.errorf(e.Range(), "Wrong type", "%s must be true or false, without quotes; this is %s.%s", name, WithArticle(v.Type()), conditionIn(v))
		return unset
	}
	return v.True()
}

// conditionIn returns what to write for a condition in quotes, or "".
func conditionIn(v cty.Value) string {
	if v.Type() != cty.String || !strings.ContainsAny(v.AsString(), "=<>(!") {
		return ""
	}
	return fmt.Sprintf(" Write when = %s.", strings.ReplaceAll(v.AsString(), "'", `"`))
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
		r.errorf(e.Range(), "Wrong value", "%s must be a whole number of at most 64 bits. Write floor(...) around a quotient.", name)
		return 0, false
	}
	size := ""
	if v.Type() == cty.String {
		size = BytesOf(v.AsString(), IfCounted)
	}
	r.errorf(e.Range(), "Wrong type", "%s must be a number, without quotes; this is %s.%s", name, WithArticle(v.Type()), size)
	return 0, false
}

// parameter reads the value of a kernel parameter: a number, or a string. White space in a string
// is folded, as it is in values read from the kernel, which contain tabs.
func (r *reader) parameter(v cty.Value, rng hcl.Range, name string) (string, bool) {
	switch {
	case v.IsNull() || !v.IsKnown():
		r.errorf(rng, "Wrong value", "%s has no value.", name)
		return "", false
	case v.Type() == cty.Number:
		f := v.AsBigFloat()
		if !f.IsInt() || f.MantExp(nil) > 64 {
			r.errorf(rng, "Wrong value", "A kernel parameter must be a whole number of at most 64 bits, or a string; write %s as one of "+
				"these.", name)
			return "", false
		}
		return f.Text('f', 0), true
	case v.Type() == cty.String:
		s := strings.Join(strings.Fields(v.AsString()), " ")
		if strings.Contains(strings.TrimSpace(v.AsString()), "\n") {
			r.errorf(rng, "Wrong value", "%s has several lines; write the kernel parameter on one line: %q.", name, s)
			return "", false
		}
		if s == "" && name != "value" || len(s) > 4000 || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			r.errorf(rng, "Wrong value", "%s must be a string of 1 to 4000 bytes, without control characters.", name)
			return "", false
		}
		return s, true
	case v.Type() == cty.Bool:
		r.errorf(rng, "Wrong type", "A kernel parameter must be a number or a string: write 1 for true, 0 for false.")
		return "", false
	}
	r.errorf(rng, "Wrong type", "%s must be a number or a string; this is %s.%s", name, WithArticle(v.Type()), inOneString(v))
	return "", false
}

// stringsOf returns the elements of a list of strings or numbers, or nil for anything else.
func stringsOf(v cty.Value) (words []string) {
	list, err := convert.Convert(v, cty.List(cty.String))
	if err != nil || list.IsNull() || !list.IsWhollyKnown() {
		return nil
	}
	for _, w := range list.AsValueSlice() {
		if w.IsNull() {
			return nil
		}
		words = append(words, w.AsString())
	}
	return words
}

// inOneString returns the string to write instead of a list of numbers.
func inOneString(v cty.Value) string {
	words := stringsOf(v)
	if words == nil {
		return ""
	}
	whole := strings.Join(words, " ")
	if slices.ContainsFunc(words, NotNumber) {
		words = Quoted(words)
	}
	return fmt.Sprintf(" Write value = %q if the parameter has these numbers, or one_of = [%s] if each of them is right.",
		whole, strings.Join(words, ", "))
}

func (r *reader) duration(e hcl.Expression, name string, unset, least, most time.Duration) time.Duration {
	s := r.textOf(e, name, inQuotes(e, "s"))
	if s == "" {
		return unset
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		instead := ""
		short := regexp.MustCompile(`^(\d+)\s*(?:(s)(?:ec(?:ond)?s?)?|(m)(?:in(?:ute)?s?)?|(h)(?:(?:ou)?rs?)?)$`).ReplaceAllString(s, "$1$2$3$4")
		if d, err := time.ParseDuration(short); err == nil && least <= d && d <= most {
			instead = fmt.Sprintf(" Write %q.", short)
		}
		r.errorf(e.Range(), "Wrong value", "%s must be a duration such as %q; %q is not.%s", name, unset, s, instead)
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
	known := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "" })
	s := r.textOf(e, name, "Write "+Alternatives(known)+".")
	if s == "" {
		return words[0]
	}
	if !slices.Contains(words, s) {
		r.errorf(e.Range(), "Wrong value", "%s must be %s, not %q.%s", name, Alternatives(known), s, DidYouMean(s, known))
		return words[0]
	}
	return s
}

// decodeMetadata reads the attributes that all requirements have in common.
func (r *reader) decodeMetadata(b Stanza) Metadata {
	off := !r.flag(b.Get("when"), "when", true)
	whenUnknown := r.unknowns() // no other attribute of the block has been read yet
	a := Metadata{
		Off: off, WhenUnknown: whenUnknown,
		Severity: Severity(r.oneOf(b.Get("severity"), "severity", string(Block), string(Warn))),
		Reason:   r.text(b.Get("reason"), "reason"),
		Ref:      r.text(b.Get("ref"), "ref"),
		Symptom:  r.text(b.Get("symptom"), "symptom"),
		TradeOff: r.text(b.Get("tradeoff"), "tradeoff"),
		Drift:    r.decodeDrift(b),
		Range:    b.Range, Override: b.Override, Rank: b.Rank,
	}
	if e := b.Get("when"); a.Off {
		a.When = Place(e.Range())
	}
	return a
}

// decodeDrift returns the block's drift attribute, or "" if it is not set. A check only inspects, so its drift cannot be "correct".
func (r *reader) decodeDrift(b Stanza) Drift {
	words := []string{"", string(Correct), string(Report), string(Ignore)}
	if b.Type == "check" {
		words = []string{"", string(Report), string(Ignore)}
	}
	return Drift(r.oneOf(b.Get("drift"), "drift", words...))
}

func Quoted(words []string) []string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = fmt.Sprintf("%q", w)
	}
	return q
}

// Alternatives returns words for a sentence: "a", "b" or "c".
func Alternatives(words []string) string {
	q := Quoted(words)
	last := len(q) - 1
	return strings.Join(q[:last], ", ") + " or " + q[last]
}

// WithArticle returns a type's name with its article, for a sentence.
func WithArticle(t cty.Type) string {
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
