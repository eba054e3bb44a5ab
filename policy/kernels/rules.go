package kernels

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed rules.txt
var rules string

// Rule is a line of rules.txt, which describes the kinds.
type Rule struct {
	Words  []string // without the kind
	Effect string
}

var byKind = sync.OnceValue(func() map[string][]Rule {
	all := map[string][]Rule{}
	for line := range strings.Lines(rules) {
		text, effect, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if words := strings.Fields(strings.TrimSuffix(text, ":")); len(words) > 1 && words[0] != "#" {
			all[words[0]] = append(all[words[0]], Rule{words[1:], effect})
		}
	}
	return all
})

// Number returns a word as a number, or 0.
func (r Rule) Number(i int) int64 {
	n, _ := strconv.ParseInt(r.Words[i], 10, 64)
	return n
}

// Rules returns the rules of one kind, in the order of the file.
func Rules(kind string) []Rule { return byKind()[kind] }

// About returns the rules of one kind whose first word is this one.
func About(kind, first string) []Rule {
	return slices.DeleteFunc(slices.Clone(Rules(kind)), func(r Rule) bool { return r.Words[0] != first })
}
