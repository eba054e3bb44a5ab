package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// What a policy may contain at most. The parser and the evaluation call themselves
// for each level: these are counted before either begins.
const (
	maxDepth     = 100   // brackets in brackets
	maxOperators = 1_000 // operators in one expression
	maxDigits    = 40    // digits of a number; one of 64 bits has 20

	tooManyDigits    = "A number has at most 40 digits, written out without an exponent; there are more here."
	tooManyOperators = "An expression has at most 1000 operators, ${ } included; there are more here."
	forInJSON        = "A policy in JSON has no for expressions: what they would make cannot be counted. Write the values out."
	tooManyBrackets  = "A policy has at most 100 brackets in one another; there are more here."
)

// checkDepth returns an error where a file is nested too deeply to be parsed, or has
// a "for" in a "for", whose results multiply.
func checkDepth(f File) hcl.Diagnostics {
	if strings.HasSuffix(f.Name, ".json") {
		return checkJSONDepth(f)
	}
	tokens, _ := hclsyntax.LexConfig(f.Text, f.Name, hcl.InitialPos) // what it rejects, the parser says better
	return checkTokens(tokens, false)
}

// checkTokens does the same for what the scanner made of a file, of an expression, or of a template in JSON.
func checkTokens(tokens hclsyntax.Tokens, json bool) hcl.Diagnostics {
	s := nesting{levels: []level{{}}, json: json}
	for i, t := range tokens {
		next := hclsyntax.TokenEOF
		if i+1 < len(tokens) {
			next = tokens[i+1].Type
		}
		opened := i > 0 && isOpening(tokens[i-1].Type)
		isFor := opened && next == hclsyntax.TokenIdent && string(t.Bytes) == "for"
		if what := s.checkToken(t, isFor, opened && string(t.Bytes) == "endfor"); what != "" {
			return tooComplex(t.Range, what)
		}
	}
	return nil
}

func tooComplex(at hcl.Range, what string) hcl.Diagnostics {
	return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Too complex", Detail: what, Subject: &at}}
}

// nesting is the brackets that are open at a token.
type nesting struct {
	levels    []level
	templates int // open %{ for }
	json      bool
}

type level struct {
	block     bool // in { }, where a line ends an expression
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

// take returns what is wrong with the token, "" for nothing.
func (s *nesting) checkToken(t hclsyntax.Token, isFor, endFor bool) string {
	top := &s.levels[len(s.levels)-1]
	switch {
	case isFor && s.json:
		return forInJSON
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
		if t.Type == hclsyntax.TokenTemplateInterp { // each repeats a text
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

// digits returns how many digits a number has where it is written out, at least: to write one of 1e300000000 as text takes hours.
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

// checkJSONDepth looks into strings too: they are expressions.
func checkJSONDepth(f File) hcl.Diagnostics {
	at := hcl.Range{Filename: f.Name, Start: hcl.InitialPos, End: hcl.InitialPos}
	in := json.NewDecoder(bytes.NewReader(f.Text))
	in.UseNumber() // one of 1e400 would end it
	for depth := 0; ; {
		t, err := in.Token()
		if err != nil {
			return nil // the end, or what the parser says better
		}
		switch t := t.(type) {
		case json.Delim:
			if t == '[' || t == '{' {
				depth++
			} else {
				depth--
			}
			if depth > maxDepth {
				return tooComplex(at, tooManyBrackets)
			}
		case json.Number:
			if countDigits(t.String()) > maxDigits {
				return tooComplex(at, tooManyDigits)
			}
		case string:
			tokens, _ := hclsyntax.LexTemplate([]byte(t), f.Name, hcl.InitialPos)
			if diags := checkTokens(tokens, true); diags.HasErrors() {
				return tooComplex(at, diags[0].Detail)
			}
		}
	}
}
