package kubeproxy

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"

	"nodegate/internal/host"
)

// FilterTable is what table filter of an iptables-save text holds. Of
// kube-proxy's chains, which may be many, only KUBE-FIREWALL and KUBE-FORWARD
// keep their rules. It is filled by writing the text to it.
type FilterTable struct {
	Source string              // what was run
	Policy map[string]string   // chain -> ACCEPT or DROP; "-" for one that somebody made
	Rules  map[string][]string // chain -> what follows its name in each rule
	inside bool                // of *filter ... COMMIT
	rest   []byte              // a line that has not ended yet
	long   bool                // it is longer than any rule: passed over
}

// maxFilterLine bounds a line: a rule is some hundred bytes long.
const maxFilterLine = 1 << 16

func newFilterTable(source string) *FilterTable {
	return &FilterTable{Source: source, Policy: map[string]string{}, Rules: map[string][]string{}}
}

// Write never fails: what is no line of table filter is passed over.
func (t *FilterTable) Write(p []byte) (int, error) {
	for rest := p; ; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		t.long = t.long || len(t.rest)+len(line) > maxFilterLine
		if !t.long {
			t.rest = append(t.rest, line...)
		}
		if !ended {
			return len(p), nil
		}
		if !t.long && (t.inside || len(t.rest) > 0 && t.rest[0] == '*') {
			t.line(string(t.rest))
		}
		t.rest, t.long, rest = t.rest[:0], false, after
	}
}

func (t *FilterTable) line(s string) {
	if strings.HasPrefix(s, "[") { // counters, with -c
		_, s, _ = strings.Cut(s, "] ")
	}
	switch {
	case strings.HasPrefix(s, "*"):
		t.inside = strings.TrimSpace(s) == "*filter"
	case s == "COMMIT":
		t.inside = false
	case strings.HasPrefix(s, ":"):
		if f := strings.Fields(s[1:]); len(f) >= 2 {
			t.Policy[f[0]] = f[1]
		}
	case strings.HasPrefix(s, "-A "):
		chain, rule, _ := strings.Cut(s[len("-A "):], " ")
		known := chain == "KUBE-FIREWALL" || chain == "KUBE-FORWARD"
		if known || !strings.HasPrefix(chain, "KUBE-") || strings.HasPrefix(chain, "KUBE-ROUTER") {
			t.Rules[chain] = append(t.Rules[chain], rule)
		}
	}
}

// RuleWords is a rule's words without its comment, quotes taken off.
func RuleWords(rule string) []string {
	var words []string
	var word strings.Builder
	quoted, any := false, false
	for i := 0; i < len(rule); i++ {
		switch c := rule[i]; {
		case c == '"':
			quoted, any = !quoted, true
		case c == '\\' && quoted && i+1 < len(rule):
			i++
			word.WriteByte(rule[i])
		case c == ' ' && !quoted:
			if any {
				words = append(words, word.String())
			}
			word.Reset()
			any = false
		default:
			word.WriteByte(c)
			any = true
		}
	}
	if any {
		words = append(words, word.String())
	}
	if i := slices.Index(words, "--comment"); i > 1 && i+1 < len(words) && words[i-1] == "comment" {
		words = slices.Delete(words, i-2, i+2)
	}
	return words
}

// after is the word that follows an option, "" where the option is not there.
func WordAfter(words []string, option string) string {
	if i := slices.Index(words, option); i >= 0 && i+1 < len(words) {
		return words[i+1]
	}
	return ""
}

// FilterTables is table filter of every iptables backend that has one.
func FilterTables(ctx context.Context, h *host.Host) ([]*FilterTable, error) {
	var all []*FilterTable
	err := h.Rules.Dumps(ctx, func(source string, r io.Reader) error {
		t := newFilterTable(source)
		_, err := io.Copy(t, r)
		if len(t.Policy) > 0 {
			all = append(all, t)
		}
		return err
	})
	return all, err
}
