package policy

import (
	"fmt"
	"unicode"
)

// OddCharacter describes the first character of a name that is not printable ASCII, as " It contains U+001B, a control
// character.", or returns "". A quoted name looks right with some of them: a Cyrillic letter, or a no-break space.
func OddCharacter(name string) string {
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
