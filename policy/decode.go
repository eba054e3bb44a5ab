package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// isName reports whether s is 1 to most bytes of ASCII letters, digits and the given
// marks. (A regexp costs the boot path a third of a millisecond each.)
func isName(s string, most int, marks string) bool {
	return s != "" && len(s) <= most && !strings.ContainsFunc(s, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && !strings.ContainsRune(marks, r)
	})
}

// requirement is a pointer to a type that embeds Metadata.
type requirement[T any] interface {
	*T
	metadata() *Metadata
}

// add decodes a block, and appends it with its unknown facts.
func add[T any, P requirement[T]](l *loader, to *[]T, decode func(Stanza) (T, bool), b Stanza) {
	if one, ok := decode(b); ok {
		*to = append(*to, one)
		P(&(*to)[len(*to)-1]).metadata().Unknown = l.unknowns()
	}
}

// decode evaluates the gathered blocks, in their order.
func (l *loader) decode() {
	p := l.policy
	for _, b := range l.blocks {
		l.unknown = nil
		switch b.Type {
		case "module":
			add(l, &p.Modules, l.decodeModule, b)
		case "sysctl":
			add(l, &p.Sysctls, l.decodeSysctl, b)
		case "sysfs":
			add(l, &p.Sysfs, l.decodeSysctl, b)
		case "link":
			add(l, &p.Links, l.decodeLink, b)
		case "check":
			if b.isExec() {
				add(l, &p.Execs, l.decodeExec, b)
			} else {
				add(l, &p.Problems, l.decodeProblem, b)
			}
		case "probe":
			add(l, &p.Probes, l.decodeProbe, b)
		}
	}
	if b := l.winner("publish", ""); b != nil {
		p.Publish = l.decodePublish(*b)
	}
	if b := l.winner("audit", ""); b != nil {
		p.Audit = l.decodeAudit(*b)
	}
	p.Gate = defaultGate()
	if gate := l.winner("gate", ""); gate != nil {
		l.unknown = nil
		p.Gate = l.decodeGate(*gate)
		if u := l.unknowns(); u != "" && !strings.HasPrefix(u, "var.") { // a mistake in a variable is reported already
			l.errorf(gate.Range, "Unknown gate", "The gate block must not depend on the node; this one depends on %s. "+
				"Write a constant or use a variable.", u)
		}
	}
}

// unknowns returns the unknown facts that the current block depends on, separated by commas.
func (r *reader) unknowns() string {
	slices.Sort(r.unknown)
	return strings.Join(slices.Compact(r.unknown), ", ")
}

func (r *reader) decodeProblem(b Stanza) (Problem, bool) {
	about := r.decodeMetadata(b)
	if b.Get("severity") == nil {
		about.Severity = ""
	}
	for _, name := range []string{"command", "timeout", "stages"} {
		if b.Get(name) != nil {
			r.errorf(b.At(name), "Not a program", "Only check \"exec\" and \"exec.NAME\" have %s. Remove it, or rename the check.", name)
		}
	}
	if !slices.Contains(r.Checks, b.Name) {
		instead := DidYouMean(b.Name, r.Checks)
		if kind, name, _ := strings.Cut(b.Name, "."); instead == "" && slices.Contains([]string{"module", "sysctl", "sysfs", "link", "probe"},
			kind) {
			instead = fmt.Sprintf(" It is a block of its own: %s %q { ... }", kind, name)
		}
		r.errorf(b.Range, "Unknown check", "There is no check %q; `nodegate explain` lists all checks.%s", b.Name, instead)
		return Problem{}, false
	}
	return Problem{about, b.Name}, true
}

func (r *reader) decodeSysctl(b Stanza) (Sysctl, bool) {
	s := Sysctl{Metadata: r.decodeMetadata(b)}
	before := len(r.diags)
	key, err := b.parameterKey()
	if err != nil {
		r.errorf(b.Range, "Not a kernel parameter", "%s.", err)
	}
	s.Key = key
	if v, ok := r.value(b.Get("value")); ok {
		switch text, ok := r.parameter(v, b.At("value"), "value"); {
		case ok && text == "" && b.Type == "sysfs":
			r.errorf(b.At("value"), "Wrong value", "%s is not empty. Write the value, or remove the block.", s.Key)
		case ok && text == "":
			s.OneOf = []string{""} // Value "" is unset
		default:
			s.Value = canonical(s.Key, text)
		}
	}
	if v, ok := r.value(b.Get("one_of")); ok {
		if list := v.Type().IsTupleType() || v.Type().IsListType(); !list || v.LengthInt() == 0 {
			r.errorf(b.At("one_of"), "Wrong type", "one_of must be a list of values, the preferred one first: one_of = [1, 2].")
		} else {
			for _, e := range v.AsValueSlice() {
				text, _ := r.parameter(e, b.At("one_of"), "each value of one_of")
				s.OneOf = append(s.OneOf, canonical(s.Key, text))
			}
		}
	}
	if n, ok := r.integer(b.Get("min"), "min"); ok {
		s.Min = &n
	}
	if n, ok := r.integer(b.Get("max"), "max"); ok {
		s.Max = &n
	}
	kinds := 0
	for _, set := range []bool{s.Value != "", s.OneOf != nil, s.Min != nil || s.Max != nil} {
		if set {
			kinds++
		}
	}
	switch {
	case len(r.diags) > before || r.hasMistake(b.Body):
		return s, false
	case len(r.unknown) > 0:
		return s, true
	case kinds == 0:
		r.errorf(b.Range, "Missing value", "Give %s one of value, one_of, min or max.", b.Name)
	case kinds > 1:
		r.errorf(b.Range, "Too many values", "Give %s only one of value, one_of, or min and max.", b.Name)
	case s.Min != nil && s.Max != nil && *s.Min > *s.Max:
		r.errorf(b.At("min"), "Contradiction", "min is %d and max is %d: no value can satisfy both.", *s.Min, *s.Max)
	}
	return s, len(r.diags) == before && kinds == 1
}

func (r *reader) decodeGate(b Stanza) Gate {
	g := defaultGate()
	g.Range = b.Range
	if u := r.text(b.Get("unit"), "unit"); u != "" {
		isService := isName(u, 255, `:_.\@-.`) && strings.HasSuffix(u, ".service") && u != ".service"
		switch {
		case isService:
			g.Unit = u
		default:
			r.errorf(b.At("unit"), "Not a service unit", "unit must name the service that waits, "+
				"for example \"kubelet.service\" or \"k3s.service\"; %q is not the name of a service.%s", u, OddCharacter(u))
		}
	}
	g.UnitAt = b.At("unit")
	g.MayLack = r.oneOf(b.Get("unit_absent"), "unit_absent", "refuse", "allow") == "allow"
	g.Budget = r.duration(b.Get("budget"), "budget", g.Budget, 10*time.Millisecond, time.Hour)
	g.Interval = r.duration(b.Get("interval"), "interval", g.Interval, 100*time.Millisecond, time.Minute)
	g.OnTimeout = OnTimeout(r.oneOf(b.Get("on_timeout"), "on_timeout", string(Hold), string(Release)))
	g.Repair = r.flag(b.Get("repair"), "repair", g.Repair)
	g.Enforce = Severity(r.oneOf(b.Get("enforce"), "enforce", string(Block), string(Warn)))
	g.OnHeld = r.command(b.Get("on_held"), "on_held")
	return g
}

func (r *reader) decodeMatch(link Stanza) Match {
	if blocks := link.Blocks; len(blocks) != 1 {
		if len(blocks) == 0 && r.hasMistake(link.Body) {
			return Match{}
		}
		r.errorf(link.Range, "One match block", "A link needs exactly one match block that selects interfaces, "+
			"for example match { name = \"flannel*\" }; this one has %d.", len(blocks))
		return Match{}
	}
	before := len(r.diags)
	b := r.openBlock(link.Blocks[0], nil)
	m := Match{
		Name: r.text(b.Get("name"), "name"), Kind: r.text(b.Get("kind"), "kind"), Driver: r.text(b.Get("driver"), "driver"),
		DefaultRoute: r.flag(b.Get("default_route"), "default_route", false),
	}
	if _, err := path.Match(m.Name, ""); err != nil {
		r.errorf(b.At("name"), "Not a glob", "%q is not a valid pattern: close the bracket, or write \\[ for a bracket.", m.Name)
	}
	if m == (Match{}) && len(r.diags) == before && !r.hasMistake(b.Body) && len(r.unknown) == 0 {
		r.errorf(b.Range, "Empty match", "Set at least one of name, kind, driver or default_route = true; "+
			"to match every interface write name = \"*\".")
	}
	return m
}
