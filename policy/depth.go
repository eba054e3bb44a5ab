package policy

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Limits on the nesting of a policy. The parser and the evaluator recurse for each level, so levels are counted before either runs.
const (
	maxDepth     = 100   // nested brackets
	maxOperators = 1_000 // operators in one expression
	maxDigits    = 40    // digits of a number; a 64-bit number has at most 20

	tooManyDigits    = "A number can have at most 40 digits, written out without an exponent; this one has more."
	tooManyOperators = "An expression can have at most 1000 operators, including ${ }; this one has more."
	tooManyBrackets  = "Brackets can be nested at most 100 deep; these are nested deeper."
)

// checkDepth returns an error if a file is nested too deeply to be parsed, or contains a "for"
// inside another "for", whose results multiply.
func checkDepth(f File) hcl.Diagnostics {
	tokens, _ := hclsyntax.LexConfig(f.Text, f.Name, hcl.InitialPos) // the parser reports errors of the scanner better
	return checkTokens(tokens)
}

// checkTokens does the same for the tokens of a file or of an expression.
func checkTokens(tokens hclsyntax.Tokens) hcl.Diagnostics {
	s := nesting{levels: []level{{}}}
	for i, t := range tokens {
		next := hclsyntax.TokenEOF
		if i+1 < len(tokens) {
			next = tokens[i+1].Type
		}
		opened := i > 0 && isOpening(tokens[i-1].Type)
		isFor := opened && next == hclsyntax.TokenIdent && string(t.Bytes) == "for"
		if what := s.checkToken(t, isFor, opened && string(t.Bytes) == "endfor"); what != "" {
			return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Too complex", Detail: what, Subject: &t.Range}}
		}
	}
	return nil
}

// nesting holds the brackets that are open at a token.
type nesting struct {
	levels    []level
	templates int // open %{ for }
}

type level struct {
	block     bool // in { }, where the end of a line ends an expression
	isFor     bool
	control   bool // %{
	operators int
}

func isOpening(t hclsyntax.TokenType) bool {
	switch t {
	case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
		return true
	}
	return false
}

// checkToken updates the nesting with one token. It returns the detail of an error, or "".
func (s *nesting) checkToken(t hclsyntax.Token, isFor, endFor bool) string {
	top := &s.levels[len(s.levels)-1]
	switch {
	case isFor:
		if s.inFor() {
			return "A for expression cannot contain another one: the number of results would multiply. Write the values out."
		}
		top.isFor = true
		if top.control {
			s.templates++
			top.isFor = false // it ends with endfor
		}
	case endFor:
		s.templates = max(0, s.templates-1)
	case isOpening(t.Type):
		if len(s.levels) > maxDepth {
			return tooManyBrackets
		}
		if t.Type == hclsyntax.TokenTemplateInterp { // each ${ } may repeat a long string
			if top.operators++; top.operators > maxOperators {
				return tooManyOperators
			}
		}
		s.levels = append(s.levels, level{
			block: t.Type == hclsyntax.TokenOBrace, control: t.Type == hclsyntax.TokenTemplateControl, operators: top.operators,
		})
	case t.Type == hclsyntax.TokenNumberLit && countDigits(string(t.Bytes)) > maxDigits:
		return tooManyDigits
	case isClosing(t.Type):
		if len(s.levels) > 1 {
			s.levels = s.levels[:len(s.levels)-1]
		}
	case t.Type == hclsyntax.TokenComma, t.Type == hclsyntax.TokenNewline && (top.block || len(s.levels) == 1):
		top.operators = 0
	case isOperator(t.Type):
		if top.operators++; top.operators > maxOperators {
			return tooManyOperators
		}
	}
	return ""
}

// countDigits returns a lower bound of the number of digits of a number that is written out without an exponent. Printing
// 1e300000000 would take hours.
func countDigits(number string) int {
	number, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	n, err := strconv.Atoi(cmp.Or(exponent, "0"))
	if err != nil {
		return maxDigits + 1
	}
	return max(len(number), n, -n)
}

func (s *nesting) inFor() bool {
	return s.templates > 0 || slices.ContainsFunc(s.levels, func(l level) bool { return l.isFor })
}

func isClosing(t hclsyntax.TokenType) bool {
	switch t {
	case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd:
		return true
	}
	return false
}

func isOperator(t hclsyntax.TokenType) bool {
	switch t {
	case hclsyntax.TokenBang, hclsyntax.TokenMinus, hclsyntax.TokenPlus, hclsyntax.TokenStar, hclsyntax.TokenSlash, hclsyntax.TokenPercent,
		hclsyntax.TokenAnd, hclsyntax.TokenOr, hclsyntax.TokenQuestion, hclsyntax.TokenEqualOp, hclsyntax.TokenNotEqual,
		hclsyntax.TokenLessThan, hclsyntax.TokenLessThanEq, hclsyntax.TokenGreaterThan, hclsyntax.TokenGreaterThanEq, hclsyntax.TokenCBrack:
		return true
	}
	return false
}
