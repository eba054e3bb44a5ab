package ruleset

import (
	"net/netip"
	"strings"
)

// scanner splits a rule into words: bare words, and quoted strings with backslash escapes as
// iptables-save writes them.
type scanner struct {
	rest string
	msg  string // description of the first error
}

// nextWord returns the next word, or "" at the end.
func (s *scanner) nextWord() string {
	for len(s.rest) > 0 && (s.rest[0] == ' ' || s.rest[0] == '\t') {
		s.rest = s.rest[1:]
	}
	if s.rest == "" {
		return ""
	}
	if s.rest[0] == '"' {
		return s.quotedWord()
	}
	w := s.rest
	if i := strings.IndexByte(w, ' '); i >= 0 {
		w, s.rest = w[:i], w[i+1:]
	} else {
		s.rest = ""
	}
	if w[0] >= 0x80 || w[0] == '&' || strings.IndexByte(w, 0xc2) >= 0 { // a quote, a dash, or a no-break space
		if isEdited(w) && s.msg == "" {
			s.msg = edited
		}
	}
	return w
}

// isEdited reports whether a word outside of quotes has characters that programs put into a text which people copy.
func isEdited(w string) bool {
	return strings.ContainsAny(w, "\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb\u2013\u2014\u00a0") || strings.Contains(w, "&quot;") ||
		strings.Contains(w, "&gt;")
}

func (s *scanner) quotedWord() string {
	body := s.rest[1:]
	escaped := false
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '\\':
			escaped = true
			i++
		case '"':
			s.rest = body[i+1:]
			if escaped {
				return unescape(body[:i])
			}
			return body[:i]
		}
	}
	s.msg, s.rest = "a quoted string lacks its closing quote", ""
	return ""
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Last returns the last address of a network.
func Last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}
