package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Filter decides which words of files leave the program. It replaces every other word by a numbered placeholder. Equal words have equal
// placeholders, so that two files still name the same thing.
type Filter struct {
	mu     sync.Mutex
	number map[string]int
	values []string
}

// Placeholder begins each placeholder.
const Placeholder = "left-out"

var hidden = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(Placeholder + `-[0-9]+`) })

// Hide returns the placeholder of a value. A leading hyphen and a number keep their meaning for a parser: a flag, a zero.
func (f *Filter) Hide(value string) string {
	if rest, is := strings.CutPrefix(value, "-"); is {
		return "-" + f.Hide(rest)
	}
	if value == "" || hidden().FindString(value) == value {
		return value
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, known := f.number[value]
	if !known {
		if f.number == nil {
			f.number = map[string]int{}
		}
		f.values = append(f.values, value)
		n = len(f.values)
		f.number[value] = n
	}
	return fmt.Sprintf("%s-%d", Placeholder, n)
}

// Reveal returns text with the values in place of their placeholders, for the machine's own programs and files.
func (f *Filter) Reveal(text string) string {
	if f == nil || !strings.Contains(text, Placeholder) {
		return text
	}
	return hidden().ReplaceAllStringFunc(text, func(found string) string {
		f.mu.Lock()
		defer f.mu.Unlock()
		n := 0
		if _, err := fmt.Sscanf(found, Placeholder+"-%d", &n); err != nil || n < 1 || n > len(f.values) {
			return found
		}
		return f.values[n-1]
	})
}

// scope is how far a value reaches whose name is not known.
type scope int

const (
	shown  scope = iota
	word         // to the next space or comma
	flag         // to the next space
	next         // the next word
	line         // to the end of the line
	module       // the next word is the name of a module
)

// filtering is the state of a filter in one text.
type filtering struct {
	*Filter
	out   strings.Builder
	hides scope
	block int // the column of the name to which deeper lines belong, which are hidden; -1: none
}

// words filters a text of any format: the names and values that are made of known words or have the shape of a number, address, path,
// unit or link remain, and so do the characters between words. The value of a name that is not known is hidden whatever its shape.
func (f *Filter) words(text string) string {
	s := filtering{Filter: f, block: -1}
	continued := false
	for i, l := range strings.Split(text, "\n") {
		if i > 0 {
			s.out.WriteByte('\n')
		}
		s.line(l, continued)
		continued = (len(l)-len(strings.TrimRight(l, `\`)))%2 == 1
	}
	return s.out.String()
}

func (s *filtering) line(l string, continued bool) {
	body := strings.TrimLeft(l, space)
	column := len(l) - len(body)
	if body == "" || body[0] == '#' || body[0] == ';' {
		s.out.WriteString(l[:min(len(l), column+1)])
		return
	}
	if section().MatchString(body) {
		s.out.WriteString(l)
		s.block = -1
		return
	}
	if isItem := body == "-" || strings.HasPrefix(body, "- "); column < s.block || column == s.block && !isItem {
		s.block = -1
	}
	if !continued {
		s.hides = shown
		if s.block >= 0 {
			s.hides = line
		}
	}
	first := !continued
	for at := 0; at < len(l); {
		if strings.IndexByte(between, l[at]) >= 0 {
			s.separator(l, at)
			at++
			continue
		}
		end := at
		for end < len(l) && strings.IndexByte(between, l[end]) < 0 {
			end++
		}
		begins := first && strings.Trim(l[:at], space+`-"'`) == ""
		if first = first && l[at:end] == "-"; l[at:end] == "-" {
			s.out.WriteByte('-')
			at = end
			continue
		}
		at = s.token(l, at, end, begins)
	}
}

// between are the characters between words.
const between = " \t\r\n\x00\"'`,;()[]{}=<>|!\\&"

// separator writes a character between words, which may end a value.
func (s *filtering) separator(l string, at int) {
	c := l[at]
	s.out.WriteByte(c)
	isSpace := strings.IndexByte(" \t\r\x00", c) >= 0 && at > 0 && l[at-1] != '=' && l[at-1] != ':'
	if s.hides == flag && isSpace || s.hides == word && (isSpace || strings.IndexByte(",}])", c) >= 0) {
		s.hides = shown
	}
}

// token writes a word, and returns the position after it. begins is set for the first word of a line.
func (s *filtering) token(l string, at, end int, begins bool) int {
	t := l[at:end]
	if strings.HasPrefix(t, "http://") || strings.HasPrefix(t, "https://") {
		return s.url(l, at, end)
	}
	if name, after, is := nameAt(l, at, end); is {
		return s.assignment(l, name, at, after, begins)
	}
	if isVariable(t) && strings.HasSuffix(l[:at], "${") {
		s.out.WriteString(t)
		return end
	}
	s.value(t)
	isFlag := strings.HasPrefix(t, "--") || len(t) == 2 && t[0] == '-'
	switch {
	case begins && (t == "install" || t == "blacklist"):
		s.hides = module
	case isFlag && s.hides == shown && !IsKnown(t):
		s.hides = next
	}
	return end
}

// url writes the scheme of a URL.
func (s *filtering) url(l string, at, end int) int {
	for end < len(l) && strings.IndexByte(" \t\x00\"'`,;)]}\\", l[end]) < 0 {
		end++
	}
	scheme, rest, _ := strings.Cut(l[at:end], "://")
	s.out.WriteString(scheme + "://" + s.Hide(rest))
	return end
}

// assignment writes a name, and decides whether its value is hidden.
func (s *filtering) assignment(l, name string, at, after int, begins bool) int {
	isFlag, isCommandLine := strings.HasPrefix(name, "-"), false
	known := IsKnown(name) && (s.hides != line || s.block < 0 && isFlag)
	if written := l[at : at+len(name)]; known || isVariable(name) || isMessageWord(strings.TrimLeft(name, "-")) {
		s.out.WriteString(written)
	} else {
		s.out.WriteString(s.Hide(written))
	}
	s.out.WriteString(l[at+len(name) : after])
	if isVariable(name) && s.hides != line { // its value may be a part of a command line
		isCommandLine = strings.HasPrefix(strings.TrimLeft(l[after:], space+`"'`), "-")
	}
	switch {
	case known && strings.HasSuffix(name, "-data"):
		return s.data(l, after)
	case known, isCommandLine:
		s.hides = shown
		return after
	case s.hides == line:
	case isFlag:
		s.hides = flag
	case begins && strings.TrimLeft(l, space)[0] != '{':
		s.hides = line
		if s.block < 0 {
			s.block = len(l) - len(strings.TrimLeft(l, space+"-"))
		}
	default:
		s.hides = word
	}
	return s.quoted(l, after)
}

// data writes the value of a field that holds a certificate.
func (s *filtering) data(l string, at int) int {
	start := at + len(l[at:]) - len(strings.TrimLeft(l[at:], space+`"'`))
	end := start
	for end < len(l) && !strings.ContainsRune(space+`"',}`, rune(l[end])) {
		end++
	}
	s.out.WriteString(l[at:start] + certificateData(l[start:end]))
	return end
}

// quoted writes a hidden value between quotes as one placeholder.
func (s *filtering) quoted(l string, at int) int {
	start := at + len(l[at:]) - len(strings.TrimLeft(l[at:], space))
	if start >= len(l) || l[start] != '"' && l[start] != '\'' {
		return at
	}
	for end := start + 1; end < len(l); end++ {
		switch l[end] {
		case '\\':
			end++
		case l[start]:
			s.out.WriteString(l[at : start+1])
			s.out.WriteString(s.Hide(l[start+1 : end]))
			return end
		}
	}
	s.hides = line
	return at
}

// nameAt reports whether a word is the name of a value, as in name=value, name: value, "name": value and NAME{x}=="value". It returns
// the name and the position of the value.
func nameAt(l string, at, end int) (name string, after int, is bool) {
	t := l[at:end]
	after = end
	for after < len(l) && strings.IndexByte(`"'} `+"\t", l[after]) >= 0 {
		after++
	}
	rest := l[after:]
	switch {
	case strings.HasSuffix(t, ":") && len(t) > 1 && !strings.HasPrefix(l[end:], "="): // l[end] is between words
		return t[:len(t)-1], end, true
	case strings.HasPrefix(rest, ":") && after > end && strings.IndexByte(`"'`, l[end]) >= 0:
		return t, after + 1, true
	case strings.HasPrefix(rest, "!="):
		return strings.TrimRight(t, "+-:"), after + 2, true
	case strings.HasPrefix(rest, "="):
		return strings.TrimRight(t, "+-:"), after + len(rest) - len(strings.TrimLeft(rest, "=")), true
	}
	return "", end, false
}

// value writes a word that is not a name.
func (s *filtering) value(t string) {
	switch isNumber := strings.Trim(t, "0123456789.") == ""; {
	case slices.Contains([]string{"true", "false", "null", "~", "*", "/", "$"}, t), s.shows(t):
		s.out.WriteString(t)
	case s.hides != shown && s.hides != module && isNumber:
		s.out.WriteByte('0') // which is a number still
	default:
		bare := strings.TrimLeft(t, "*@+:~")
		s.out.WriteString(t[:len(t)-len(bare)] + s.Hide(bare))
		// Checks do not run a command with a specifier that they cannot resolve.
		s.out.WriteString(regexp.MustCompile(`%[a-zA-Z]`).FindString(Specifiers("kubelet.service").Replace(t)))
	}
	if s.hides == next || s.hides == module {
		s.hides = shown
	}
}

// shows reports whether a word remains here.
func (s *filtering) shows(t string) bool {
	return s.hides == shown && isShown(t) || s.hides == module && moduleName().MatchString(t) ||
		strings.HasPrefix(t, "--") && isMessageWord(t[2:])
}
