package config

import "strings"

// Flags yields the flags in the text of a unit or of a file of variables: --flag=value, --flag
// value and --flag.
func Flags(text string) func(yield func(flag, value string) bool) {
	return func(yield func(flag, value string) bool) {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(strings.TrimSpace(line), "#") {
				continue
			}
			words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'", r) })
			for i, w := range words {
				_, rest, isFlag := strings.Cut(w, "--")
				flag, value, assigned := strings.Cut(rest, "=")
				switch {
				case assigned:
				case i+1 < len(words) && !strings.Contains(words[i+1], "--"):
					value = words[i+1]
				default:
					value = "true"
				}
				if isFlag && !yield(flag, value) {
					return
				}
			}
		}
	}
}
