package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"nodegate/internal/audit"
	"nodegate/internal/verdict"
)

// KindWays is the kind of the document with the ways of packets to a Service.
const KindWays = "Ways"

// Ways is the document with the ways of packets to a Service.
type Ways struct {
	APIVersion string        `json:"apiVersion"` // nodegate/v1
	Kind       string        `json:"kind"`       // Ways
	Ways       []audit.Trace `json:"ways"`       // one for each port, family and address
}

// WriteWays writes the ways of packets to a Service as text, json or svg.
func WriteWays(w io.Writer, format string, list []audit.Trace) error {
	switch format {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(Ways{APIVersion, KindWays, list})
	case "svg":
		return drawWays(w, list)
	}
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
		text := fmt.Sprintf("%.2f %%", 100*w.Chance)
		if len(w.To) > 1 {
			text += " each"
		}
		if !w.Sure {
			text = "perhaps"
		}
		text += ": " + w.End + " to " + strings.Join(w.To[:min(len(w.To), 20)], ", ")
		if len(w.To) > 20 {
			text += fmt.Sprintf(" and %d more", len(w.To)-20)
		}
		if w.End == "dropped" || w.End == "rejected" {
			text = strings.Replace(text, w.End+" to ", w.End+", on its way to ", 1)
		}
		if w.Masquerade {
			text += ", masqueraded"
		}
		if w.Untracked {
			text += ", not tracked"
		} else if !w.Translated {
			text += ", not translated"
		}
		one := branch{text: text, sub: stepBranches(w.Steps)}
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

// stepBranches groups rules by their hook.
func stepBranches(steps []audit.TraceStep) (roots []branch) {
	hook := ""
	for _, s := range steps {
		if s.Hook != hook {
			hook = s.Hook
			roots = append(roots, branch{text: hook})
		}
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
		last := &roots[len(roots)-1]
		last.sub = append(last.sub, branch{text: text})
	}
	return roots
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

func drawWays(w io.Writer, list []audit.Trace) error {
	d := drawing{bottom: svgGap}
	for _, t := range list {
		class := "head"
		if t.Verdict != verdict.Pass {
			class = "bad"
		}
		d.drawBox(0, class, trace(t).title())
		d.drawBranches(trace(t).branches(), 1, map[string]bool{})
		d.bottom += svgLine
	}
	return d.write(w)
}
