package main

import (
	"regexp"
	"strings"
	"testing"

	"nodegate/internal/require"
)

// page is a manual page under construction, in the man macros.
type page struct {
	strings.Builder
	headed bool // the last line is a heading, after which no paragraph macro is needed
}

func (p *page) line(s string) {
	if s == ".PP" && p.headed {
		return
	}
	p.headed = strings.HasPrefix(s, ".SH ") || strings.HasPrefix(s, ".SS ")
	p.WriteString(s + "\n")
}

func (p *page) title(name, section string) {
	p.line(`.TH ` + roff(name) + ` ` + section + ` "DATE" "nodegate VERSION" "nodegate"`)
	p.line(".nh") // no hyphenation: readers search for names of sysctls and files
	p.line(".ad l")
}

func (p *page) section(name string) { p.line(".SH " + roff(name)) }

// text writes the lines of one paragraph, which are escaped already.
func (p *page) text(s string) {
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, ".") && line != ".br" {
			line = `\&` + line
		}
		p.line(line)
	}
}

func (p *page) item(tag, what string) {
	p.line(".TP")
	p.text(tag)
	p.text(what)
}

func (p *page) code(s string) {
	p.line(".PP")
	p.line(".nf")
	p.line(".RS 2")
	for line := range strings.Lines(strings.Trim(unindent(s), "\n")) {
		line = roff(strings.TrimRight(line, "\n"))
		if strings.HasPrefix(line, ".") {
			line = `\&` + line
		}
		if line == "" {
			line = `\&`
		}
		p.line(line)
	}
	p.line(".RE")
	p.line(".fi")
}

// unindent removes the spaces that all lines begin with.
func unindent(s string) string {
	for strings.HasPrefix(s, " ") && !regexp.MustCompile(`(?m)^[^ \n]`).MatchString(s) {
		s = regexp.MustCompile(`(?m)^ `).ReplaceAllString(s, "")
	}
	return s
}

// prose writes a help text: paragraphs, and indented lines that stay unchanged.
func (p *page) prose(s string) {
	for paragraph := range strings.SplitSeq(strings.Trim(s, "\n"), "\n\n") {
		if strings.HasPrefix(paragraph, " ") {
			p.code(paragraph)
			continue
		}
		p.line(".PP")
		lead, indented, _ := strings.Cut(paragraph, "\n  ")
		p.text(roff(lead))
		if indented != "" {
			p.code("  " + indented)
		}
	}
}

func strong(s string) string  { return `\fB` + s + `\fR` }
func slanted(s string) string { return `\fI` + s + `\fR` }

// roff escapes text that roff must print literally.
func roff(s string) string {
	return strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`).Replace(s)
}

// policyPage returns docs/policy.md as nodegate-policy(5).
func policyPage(t *testing.T) string {
	t.Helper()
	text := require.ReadFile(t, "../../docs/policy.md")
	var p page
	p.title("NODEGATE-POLICY", "5")
	p.section("NAME")
	p.text(`nodegate\-policy \- what a Kubernetes node must be, in HCL`)
	p.markdown(string(text))
	p.section("SEE ALSO")
	p.text(strong("nodegate") + "(1), " + strong("nodegate\\-lint") + "(1), " + strong("nodegate\\-policy") + "(1)")
	return p.String()
}

// markdown renders the markup of our documents: headings, paragraphs, fenced code, and
// tables, whose first column becomes a tag.
func (p *page) markdown(s string) {
	blocks := regexp.MustCompile("(?s)```.*?\n```\n|.+?(?:\n\n|\n?$)").FindAllString(s, -1)
	for _, block := range blocks {
		block = strings.Trim(block, "\n")
		switch {
		case block == "":
			continue
		case strings.HasPrefix(block, "# "):
			p.section("DESCRIPTION")
		case strings.HasPrefix(block, "## "):
			p.section(strings.ToUpper(block[3:]))
		case strings.HasPrefix(block, "```"):
			_, code, _ := strings.Cut(strings.TrimSuffix(block, "```"), "\n")
			p.code(code)
		case strings.HasPrefix(block, "|"):
			p.table(strings.Split(block, "\n"))
		default:
			p.line(".PP")
			p.text(inline(block))
		}
	}
}

func (p *page) table(rows []string) {
	for _, row := range rows[2:] {
		cells := regexp.MustCompile(` \| |^\| | \|$`).Split(row, -1)
		var filled []string
		for _, c := range cells {
			if c != "" {
				filled = append(filled, inline(c))
			}
		}
		if len(filled) == 3 {
			filled[1] = "default " + filled[1] + ": " + filled[2]
		}
		p.item(filled[0], filled[1])
	}
}

// inline renders code in bold, emphasis in italic, and links as their text.
func inline(s string) string {
	s = roff(regexp.MustCompile(`\[([^]]+)\]\([^)]+\)`).ReplaceAllString(s, "$1"))
	s = regexp.MustCompile(`(?s)\\\(ga(.*?)\\\(ga`).ReplaceAllString(s, `\fB$1\fR`)
	return regexp.MustCompile(`(?s)\\fB.*?\\fR|\*[^\s*][^*\n]*?\*`).ReplaceAllStringFunc(s, func(found string) string {
		if strings.HasPrefix(found, "*") {
			return slanted(strings.Trim(found, "*"))
		}
		return found // a path in code may have asterisks
	})
}
