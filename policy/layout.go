package policy

import (
	"bytes"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Layout returns a policy file in the standard layout: two spaces a level, equal signs of
// neighbouring attributes aligned, one space elsewhere. It changes only white space, and none
// inside strings. A file with a syntax error is returned unchanged, with the errors.
// (hclwrite.Format does more, but links go-cmp, whose initialisation costs every command 0.4 ms,
// also on the boot path. A test compares the two.)
func Layout(f File) ([]byte, hcl.Diagnostics) {
	if diags := checkDepth(f); diags.HasErrors() {
		return f.Text, diags
	}
	if _, diags := hclsyntax.ParseConfig(f.Text, f.Name, hcl.InitialPos); diags.HasErrors() {
		return f.Text, diags
	}
	tokens, diags := hclsyntax.LexConfig(f.Text, f.Name, hcl.InitialPos)
	if diags.HasErrors() {
		return f.Text, diags
	}
	var lines []line
	current := line{}
	for _, t := range tokens {
		switch {
		case t.Type == hclsyntax.TokenNewline || t.Type == hclsyntax.TokenEOF:
			lines = append(lines, current)
			current = line{}
		case t.Type == hclsyntax.TokenComment && bytes.HasSuffix(t.Bytes, []byte("\n")):
			t.Bytes = bytes.TrimRight(t.Bytes, "\r\n")
			lines = append(lines, append(current, t))
			current = line{}
		default:
			if t.Type == hclsyntax.TokenComment {
				t.Bytes = bytes.TrimRight(t.Bytes, "\r") // the last line of the file, without a newline
			}
			current = append(current, t)
		}
	}
	return writeLines(lines), nil
}

// line holds the tokens of one line. A heredoc, or a string that spans lines, belongs to the line
// on which it begins.
type line hclsyntax.Tokens

func writeLines(lines []line) []byte {
	var out bytes.Buffer
	depth, blank := 0, 0
	for i := 0; i < len(lines); {
		if len(lines[i]) == 0 {
			blank++
			i++
			continue
		}
		if blank > 0 && out.Len() > 0 {
			out.WriteByte('\n')
		}
		blank = 0
		// Align the equal signs of attributes on neighbouring lines.
		group := 1
		if lines[i].isAttribute() {
			for i+group < len(lines) && lines[i+group].isAttribute() && lines[i+group-1].depthChange() == 0 {
				group++
			}
		}
		width := 0
		for _, l := range lines[i : i+group] {
			if l.isAttribute() {
				width = max(width, len(l[0].Bytes))
			}
		}
		for _, l := range lines[i : i+group] {
			indent := depth
			if l.beginsWithClose() {
				indent--
			}
			out.WriteString(strings.Repeat("  ", max(0, indent)))
			out.WriteString(l.layOut(width))
			out.WriteByte('\n')
			depth += l.depthChange()
		}
		i += group
	}
	return out.Bytes()
}

// isAttribute reports whether the line begins with NAME =.
func (l line) isAttribute() bool {
	return len(l) > 2 && l[0].Type == hclsyntax.TokenIdent && l[1].Type == hclsyntax.TokenEqual
}

func (l line) beginsWithClose() bool {
	switch l[0].Type {
	case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen:
		return true
	}
	return false
}

// depthChange returns the number of brackets that the line opens, less those that it closes.
func (l line) depthChange() int {
	n := 0
	for _, t := range l {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen:
			n++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen:
			n--
		}
	}
	return n
}

// layOut returns the line with its first equal sign in column width+1.
func (l line) layOut(width int) string {
	var b strings.Builder
	depth := 0 // of strings and heredocs, in which every byte is kept
	for i, t := range l {
		if i > 0 {
			b.WriteString(l.gap(i, depth, width))
		}
		switch t.Type {
		case hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc:
			depth++
		case hclsyntax.TokenCQuote, hclsyntax.TokenCHeredoc:
			depth--
		}
		b.Write(t.Bytes)
	}
	return b.String()
}

// gap returns the white space before token i.
func (l line) gap(i, quoted, width int) string {
	before, t := l[i-1], l[i]
	apart := t.Range.Start.Byte > before.Range.End.Byte
	switch {
	case quoted > 0:
		return strings.Repeat(" ", t.Range.Start.Byte-before.Range.End.Byte)
	case i == 1 && l.isAttribute():
		return strings.Repeat(" ", width-len(before.Bytes)+1)
	case t.Type == hclsyntax.TokenEqual || before.Type == hclsyntax.TokenEqual || t.Type == hclsyntax.TokenComment:
		return " "
	case before.Type == hclsyntax.TokenComma || isBinaryOperator(before) || isBinaryOperator(t):
		return " "
	case t.Type == hclsyntax.TokenComma || before.Type == hclsyntax.TokenOBrack || t.Type == hclsyntax.TokenCBrack,
		before.Type == hclsyntax.TokenOParen, t.Type == hclsyntax.TokenCParen:
		return ""
	case before.Type == hclsyntax.TokenOBrace && t.Type == hclsyntax.TokenCBrace:
		return ""
	case before.Type == hclsyntax.TokenOBrace, t.Type == hclsyntax.TokenCBrace:
		return " "
	case t.Type == hclsyntax.TokenOBrace && (before.Type == hclsyntax.TokenIdent || before.Type == hclsyntax.TokenCQuote):
		return " "
	case before.Type == hclsyntax.TokenIdent && t.Type == hclsyntax.TokenOQuote:
		return " "
	case apart:
		return " "
	}
	return ""
}

// isBinaryOperator reports whether the token stands between two operands. A minus is not included:
// it may also be a sign, so the space around it is kept.
func isBinaryOperator(t hclsyntax.Token) bool {
	switch t.Type {
	case hclsyntax.TokenStar, hclsyntax.TokenSlash, hclsyntax.TokenPlus, hclsyntax.TokenPercent, hclsyntax.TokenAnd, hclsyntax.TokenOr,
		hclsyntax.TokenEqualOp, hclsyntax.TokenNotEqual, hclsyntax.TokenLessThan, hclsyntax.TokenLessThanEq,
		hclsyntax.TokenGreaterThan, hclsyntax.TokenGreaterThanEq, hclsyntax.TokenQuestion:
		return true
	}
	return false
}
