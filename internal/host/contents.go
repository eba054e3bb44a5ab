package host

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"nodegate/internal/host/config"
	"nodegate/internal/sorted"
)

// note marks the policy: a replay evaluates its text.
func note(name string) string {
	if config.KindOf(name) == config.Policy {
		return " (whole, with any secret in it)"
	}
	return ""
}

// Contents prints what a snapshot holds, for a reader who wants to send it: each file with its size
// in the snapshot, the largest first, and the size of every other kind of answer.
func (s *Snapshot) Contents(w io.Writer) error {
	all, err := json.Marshal(s)
	if err != nil {
		return err
	}
	var sections map[string]json.RawMessage
	if err := json.Unmarshal(all, &sections); err != nil {
		return err
	}
	type entry struct {
		name string
		size int
	}
	var lines []entry
	for name, content := range sections {
		if name != "files" && name != "rules" {
			lines = append(lines, entry{name, len(content)})
		}
	}
	for name, a := range s.Files {
		if a.Error == "" {
			lines = append(lines, entry{name + note(name), len(a.Value)})
		}
	}
	for _, d := range s.Rules {
		lines = append(lines, entry{"rules: " + d.Source, len(d.Text)})
	}
	sorted.By(lines, func(a, b entry) int { return cmp.Or(b.size-a.size, strings.Compare(a.name, b.name)) })
	for _, l := range lines {
		if _, err := fmt.Fprintf(w, "%9d  %s\n", l.size, l.name); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(w, "%9d  in all\n", len(all))
	return err
}
