package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// prose lists the attributes in which any language is welcome.
func prose() []string { return []string{"reason", "symptom", "tradeoff", "description"} }

// checkLookAlikes reports each word of a file with an invisible character, or with a letter that looks like an ASCII one: such a name does
// not exist, and no reader can see the reason. A comment and prose may have any letters, but no invisible character. A word in reported
// is left out.
func checkLookAlikes(files []File, reported hcl.Diagnostics) hcl.Diagnostics {
	r := &reader{}
	for _, f := range files {
		if !utf8.Valid(f.Text) || f.own {
			continue
		}
		check := func(text string, at hcl.Range, free bool) {
			if what := lookAlike(text, free); what != "" && !slices.ContainsFunc(reported, func(d *hcl.Diagnostic) bool {
				return d.Subject != nil && d.Subject.Overlaps(at) && strings.Contains(d.Detail, "U+")
			}) {
				r.warnf(at, "Look-alike character", "%s", what)
			}
		}
		if strings.HasSuffix(f.Name, ".json") {
			eachJSONString(f, check)
			continue
		}
		if isASCII(f.Text) {
			continue // without the tokens of a large file in memory a second time
		}
		tokens, _ := hclsyntax.LexConfig(f.Text, f.Name, hcl.InitialPos)
		attribute := ""
		for i, t := range tokens {
			free := t.Type == hclsyntax.TokenComment || slices.Contains(prose(), attribute)
			if t.Type == hclsyntax.TokenIdent && i+1 < len(tokens) && tokens[i+1].Type == hclsyntax.TokenEqual {
				attribute, free = string(t.Bytes), false
			}
			if t.Type == hclsyntax.TokenNewline || t.Type == hclsyntax.TokenCBrace {
				attribute = ""
			}
			check(string(t.Bytes), t.Range, free)
		}
	}
	return r.warnings
}

func isASCII(text []byte) bool {
	return !slices.ContainsFunc(text, func(c byte) bool { return c >= utf8.RuneSelf })
}

// lookAlike describes the first odd character of a text, or returns "". In a free text only invisible characters are odd; white space other
// than a space is usual there.
func lookAlike(text string, free bool) string {
	for i, c := range text {
		twin := looksLike(c)
		switch {
		case c < utf8.RuneSelf, c == '\ufeff' && i == 0:
			continue
		case unicode.Is(unicode.Cf, c):
			return fmt.Sprintf("This text contains %U, %s. Remove it.", c, characterKind(c))
		case free:
			continue
		case unicode.IsSpace(c):
			return fmt.Sprintf("This text contains %U, which looks like a space. Write a space, or remove it.", c)
		case twin != 0:
			return fmt.Sprintf("This text contains %U, which looks like %q and is another character. Write %[2]q.", c, twin)
		}
	}
	return ""
}

// looksLike returns the ASCII character that a fullwidth, Cyrillic or Greek letter, a quotation mark or a dash looks like, or 0. Source:
// confusables.txt of Unicode TR 39.
func looksLike(c rune) rune {
	if c >= 0xff01 && c <= 0xff5e { // fullwidth forms
		return c - 0xff01 + '!'
	}
	const (
		odd   = "авеѕіјһорсухԁԛԝАВЕЅІЈКМНОРСТУХαινορυΑΒΕΖΗΙΚΜΝΟΡΤΥΧ“”‘’–—−‐‑․⁄∕"
		plain = "abesijhopcyxdqwABESIJKMHOPCTYXaivopuABEZHIKMNOPTYX\"\"''-----.//"
	)
	if i := slices.Index([]rune(odd), c); i >= 0 {
		return []rune(plain)[i]
	}
	return 0
}

// eachJSONString passes each string of a JSON file to check. It stops at a syntax error, which is reported elsewhere.
func eachJSONString(f File, check func(text string, at hcl.Range, free bool)) {
	decoder := json.NewDecoder(strings.NewReader(string(f.Text)))
	var objects []bool // for each open bracket, whether it is an object
	key, isKey := "", false
	for {
		t, err := decoder.Token()
		if err != nil {
			return
		}
		inObject := len(objects) > 0 && objects[len(objects)-1]
		switch v := t.(type) {
		case json.Delim:
			if v == '{' || v == '[' {
				objects = append(objects, v == '{')
				isKey = v == '{'
				continue
			}
			objects = objects[:len(objects)-1]
		case string:
			end := int(decoder.InputOffset())
			check(v, rangeBefore(f, end), !isKey && slices.Contains(prose(), key))
			if inObject && isKey {
				key, isKey = v, false
				continue
			}
		}
		isKey = len(objects) > 0 && objects[len(objects)-1]
	}
}

// rangeBefore returns the position of the JSON string that ends at a byte of the file.
func rangeBefore(f File, end int) hcl.Range {
	start := end - 1
	for start > 0 {
		start--
		if f.Text[start] == '"' && (start == 0 || f.Text[start-1] != '\\') {
			break
		}
	}
	at := func(offset int) hcl.Pos {
		before := string(f.Text[:offset])
		line := strings.LastIndexByte(before, '\n') + 1
		return hcl.Pos{Line: 1 + strings.Count(before, "\n"), Column: 1 + utf8.RuneCountInString(before[line:]), Byte: offset}
	}
	return hcl.Range{Filename: f.Name, Start: at(start), End: at(end)}
}
