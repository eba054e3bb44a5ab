// Package plain makes text from outside harmless: for terminals and logs, which interpret control
// characters, and for the shell of an operator who copies a remedy.
package plain

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Escape returns s with every character that a terminal could interpret, or that is invisible,
// written as \u001b. Bytes that are not UTF-8 become \xff. Line ends and tabs stay.
func Escape(s string) string {
	harmless := true
	for i := 0; i < len(s) && harmless; i++ {
		harmless = s[i] >= ' ' && s[i] < 0x7f || s[i] == '\n' || s[i] == '\t'
	}
	if harmless {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		appendRune(&b, r, s[:size])
		s = s[size:]
	}
	return b.String()
}

func appendRune(b *strings.Builder, r rune, text string) {
	switch {
	case r == utf8.RuneError && len(text) == 1:
		fmt.Fprintf(b, `\x%02x`, text[0])
	case r == '\n' || r == '\t' || unicode.IsGraphic(r):
		b.WriteString(text)
	case r > 0xffff: // a surrogate pair, as in JSON
		high, low := utf16.EncodeRune(r)
		fmt.Fprintf(b, `\u%04x\u%04x`, high, low)
	default:
		fmt.Fprintf(b, `\u%04x`, r)
	}
}

// Quote returns s as one word for a POSIX shell. A word that needs no quotes is returned unchanged.
func Quote(s string) string {
	safe := s != ""
	for _, r := range s {
		safe = safe && (r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("._:@/+=,-", r))
	}
	if safe {
		return s
	}
	return Quoted(s)
}

// Quoted returns s in quotes for a POSIX shell, even if it needs none.
func Quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
