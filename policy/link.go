package policy

import (
	"strings"
)

func (r *reader) decodeLink(b Stanza) (Link, bool) {
	before := len(r.diags)
	l := Link{Metadata: r.decodeMetadata(b), Name: b.Name}
	if !isName(b.Name, 63, "._-") || strings.ToLower(b.Name) != b.Name {
		r.errorf(b.Range, "Not a name", "Name a link in lower-case letters, digits, dots, - and _, "+
			"for example \"vxlan\"; %q is not such a name.%s", b.Name, OddCharacter(b.Name))
	}
	l.Match = r.decodeMatch(b)
	l.Settings = r.decodeSettings(b)
	if len(r.diags) == before && !r.hasMistake(b.Body) && len(r.unknown) == 0 && l.Settings == nil {
		r.errorf(b.Range, "Empty link", "Give link %q one of these: %s.", b.Name, strings.Join(linkArguments(), ", "))
	}
	return l, len(r.diags) == before
}

// checkLinks reports links of one name, and links that set one interface to different values.
func (p *Policy) checkLinks(r *reader) {
	for i, l := range p.Links {
		for _, o := range p.Links[:i] {
			what := l.Contradicts(o)
			switch {
			case o.Name == l.Name:
				r.errorf(l.Range, "Same name twice", "Link %q is already defined at %s. Rename one of the two.", l.Name, Place(o.Range))
			case what == "" || !o.Applies() || !l.Applies():
			case o.Match == l.Match:
				r.errorf(l.Range, "Contradiction", "This link sets %s; link %q at %s matches the same interfaces "+
					"and sets it differently. Remove one of the two.", what, o.Name, Place(o.Range))
			}
		}
	}
}

// Contradicts returns a setting that two links set differently, or "".
func (l Link) Contradicts(o Link) string {
	for _, a := range l.Settings {
		for _, b := range o.Settings {
			if what := a.contradicts(b); what != "" {
				return what
			}
		}
	}
	return ""
}
