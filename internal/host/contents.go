package host

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"nodegate/internal/host/config"
	"nodegate/internal/sorted"
)

// note marks the policy: a replay evaluates its text.
func note(name string) string {
	if config.IsPolicy(name) {
		return " (whole, with any secret in it)"
	}
	return ""
}

// Contents prints what a snapshot holds, for a reader who wants to send it: each file with its size
// in the snapshot, the largest first, and the size of every other kind of answer.
func (s *Snapshot) Contents(w io.Writer) error {
	type entry struct {
		name string
		size int
	}
	var lines []entry
	total := 0
	for kind, answers := range s.Answers {
		sum := entry{name: kind}
		for name, a := range answers {
			text, err := a.MarshalJSON()
			if err != nil {
				return err
			}
			total += len(text)
			switch kind {
			case fileKind:
				lines = append(lines, entry{name + note(name), len(text)})
			case ruleKind:
				lines = append(lines, entry{"rules: " + name, len(text)})
			default:
				sum.size += len(name) + len(text)
			}
		}
		if sum.size > 0 {
			lines = append(lines, sum)
		}
	}
	sorted.By(lines, func(a, b entry) int { return cmp.Or(b.size-a.size, strings.Compare(a.name, b.name)) })
	for _, l := range lines {
		if _, err := fmt.Fprintf(w, "%9d  %s\n", l.size, l.name); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%9d  in all\n", total)
	return err
}
