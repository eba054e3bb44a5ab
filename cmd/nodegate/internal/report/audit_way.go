package report

import (
	"fmt"
	"io"
	"strings"

	"nodegate/internal/audit"
)

// Ways is the document with the ways of packets to a Service.
type Ways struct {
	APIVersion string        `json:"apiVersion"` // nodegate/v1
	Kind       string        `json:"kind"`       // Ways
	Ways       []audit.Trace `json:"ways"`       // one for each port, family and address
}

// NewWays returns the document of ways.
func NewWays(list []audit.Trace) Ways { return Ways{APIVersion, "Ways", list} }

// WriteWays writes the ways of packets to a Service as text.
func WriteWays(w io.Writer, list []audit.Trace) error {
	var b strings.Builder
	for i, t := range list {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintln(&b, trace(t).title())
		writeBranches(&b, trace(t).branches(), "")
	}
	_, err := io.WriteString(w, printableLines(b.String()))
	return err
}

type trace audit.Trace

func (t trace) title() string {
	return fmt.Sprintf("%s (%s, %s) from %s to %s: %s", t.Service, t.Protocol, t.Family, t.From, t.To, t.Verdict)
}

// branches returns the hooks with their rules, then the ways.
func (t trace) branches() []branch {
	roots := stepBranches(t.Steps)
	for _, w := range t.Ways {
		one := branch{text: share(w) + ": " + endOf(w), sub: stepBranches(w.Steps)}
		if w.Reply != "" {
			one.sub = append(one.sub, branch{text: "the reply " + w.Reply})
		}
		roots = append(roots, one)
	}
	for _, text := range t.NotFollowed {
		roots = append(roots, branch{text: "not followed: " + text})
	}
	return roots
}

// share returns how many of the new connections take a way.
func share(w audit.TraceWay) string {
	switch {
	case !w.Sure:
		return "perhaps"
	case len(w.To) > 1:
		return fmt.Sprintf("%.2f %% each", 100*w.Chance)
	}
	return fmt.Sprintf("%.2f %%", 100*w.Chance)
}

// isLost reports whether the packets of a way do not arrive.
func isLost(w audit.TraceWay) bool { return w.End == "dropped" || w.End == "rejected" }

// endOf returns the end of a way in words.
func endOf(w audit.TraceWay) string {
	text := w.End + " to "
	if isLost(w) {
		text = w.End + ", on its way to "
	}
	text += strings.Join(w.To[:min(len(w.To), 20)], ", ")
	if len(w.To) > 20 {
		text += fmt.Sprintf(" and %d more", len(w.To)-20)
	}
	if w.Masquerade {
		text += ", masqueraded"
	}
	if w.Untracked {
		text += ", not tracked"
	} else if !w.Translated {
		text += ", not translated"
	}
	return text
}

// stepBranches groups rules by their hook.
func stepBranches(steps []audit.TraceStep) (roots []branch) {
	hook := ""
	for _, s := range steps {
		if s.Hook != hook {
			hook = s.Hook
			roots = append(roots, branch{text: hook})
		}
		last := &roots[len(roots)-1]
		last.sub = append(last.sub, branch{text: stepText(s)})
	}
	return roots
}

func stepText(s audit.TraceStep) string {
	text := s.Table + " " + s.Chain
	switch {
	case s.Handle > 0:
		text += fmt.Sprintf(" handle %d", s.Handle)
	case s.Line > 0:
		text += fmt.Sprintf(" line %d", s.Line)
	}
	if text += ": " + s.Does; s.Rule != "" && s.Rule != s.Does {
		text += "  " + shortRule(s.Rule)
	}
	if s.Unsure != "" {
		text += "  (if " + s.Unsure + ")"
	}
	return text
}

// shortRule returns a rule without its chain, which is printed before it, and without its comment.
func shortRule(rule string) string {
	if rest, is := strings.CutPrefix(rule, "-A "); is {
		_, rule, _ = strings.Cut(rest, " ")
	}
	before, rest, has := strings.Cut(rule, "-m comment --comment \"")
	if _, after, ends := strings.Cut(rest, "\" "); has && ends {
		return before + after
	}
	return rule
}
