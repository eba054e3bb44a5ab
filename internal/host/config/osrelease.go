package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// OSRelease has the variables of os-release(5).
type OSRelease map[string]string

// ParseOSRelease reads a file of os-release(5): shell assignments without expansion.
func ParseOSRelease(name string, text []byte) (OSRelease, error) {
	all := OSRelease{}
	var errs []error
	n := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		n++
		line = strings.Trim(line, space)
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || key == "" || strings.ContainsAny(key, space) {
			errs = append(errs, fmt.Errorf("%s: not an assignment", At(name, n)))
			continue
		}
		all[key] = unquote(value)
	}
	return all, errors.Join(errs...)
}

func unquote(s string) string {
	if len(s) < 2 || s[0] != '"' && s[0] != '\'' || s[len(s)-1] != s[0] {
		return s
	}
	quote, s := s[0], s[1:len(s)-1]
	if quote == '\'' {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("\"$`\\", s[i+1]) >= 0 {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Like reports whether the distribution is one of these, or derives from one.
func (o OSRelease) Like(ids ...string) bool {
	if slices.Contains(ids, o["ID"]) {
		return true
	}
	return slices.ContainsFunc(strings.Fields(o["ID_LIKE"]), func(id string) bool { return slices.Contains(ids, id) })
}
