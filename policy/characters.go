package policy

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// oddCharacter describes the first character of a name that is not printable ASCII, as " It contains U+001B, a control
// character.", or returns "". A quoted name looks right with some of them: a Cyrillic letter, or a no-break space.
func oddCharacter(name string) string {
	for _, c := range name {
		if c > ' ' && c < 0x7f {
			continue
		}
		return fmt.Sprintf(" It contains %U, %s.", c, characterKind(c))
	}
	return ""
}

func characterKind(c rune) string {
	switch {
	case unicode.IsControl(c):
		return "a control character"
	case unicode.IsSpace(c):
		return "white space"
	case !unicode.IsGraphic(c):
		return "an invisible character"
	}
	return "a character that is not ASCII"
}

// neverInLink reports whether no link's name can have the character: white space, slashes and colons (dev_valid_name of
// net/core/dev.c). The kernel accepts control characters, but no program gives a link such a name.
func neverInLink(c rune) bool {
	return c == '/' || c == ':' || unicode.IsSpace(c) || !unicode.IsGraphic(c)
}

// globFor returns the glob for a simple regular expression, or "".
func globFor(expression string) string {
	m := regexp.MustCompile(`^/?\^?([\w.-]*\w)(?:\.[*+]|\[0-9\][*+]?|\\d[*+]?)?\$?/?$`).FindStringSubmatch(expression)
	if m == nil || m[1] == expression {
		return ""
	}
	return fmt.Sprintf(" Write a glob: name = %q", m[1]+"*")
}

// checkCharacters returns false if it reports a name, kind or driver that no link can have because of one of its characters.
// It checks only in Lint: a node keeps accepting its installed policy.
func (r *reader) checkCharacters(m Match, b block) bool {
	if r.catalogue == nil {
		return true
	}
	before := len(r.diags)
	if i := strings.IndexFunc(m.Name, neverInLink); i >= 0 {
		r.errorf(b.at("name"), "Not a name of a link", "%q matches no link: a name has no white space, slashes, colons or invisible "+
			"characters.%s", m.Name, oddCharacter(m.Name[i:])+globFor(m.Name))
	}
	for _, field := range []struct{ name, value string }{{"kind", m.Kind}, {"driver", m.Driver}} {
		odd := func(c rune) bool { return c > 0x7e || c < ' ' || c == ' ' && field.name == "kind" } // "802.1Q VLAN Support" is a driver
		if i := strings.IndexFunc(field.value, odd); i >= 0 {
			r.errorf(b.at(field.name), "Not a "+field.name, "%q is the %s of no link: write it in printable ASCII.%s", field.value, field.name,
				oddCharacter(field.value[i:]))
		}
	}
	return len(r.diags) == before
}
