package kernels

import (
	_ "embed"
	"strings"
)

//go:embed rules.txt
var rules string

// Rule is a line of rules.txt, which describes the kinds.
type Rule struct {
	Words  []string // without the kind
	Effect string
}

// Rules returns the rules of one kind, in the order of the file.
func Rules(kind string) (all []Rule) {
	for line := range strings.Lines(rules) {
		if rest, is := strings.CutPrefix(line, kind+" "); is {
			words, effect, _ := strings.Cut(strings.TrimSpace(rest), ": ")
			all = append(all, Rule{strings.Fields(strings.TrimSuffix(words, ":")), effect})
		}
	}
	return all
}
