package service

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"nodegate/internal/host/config"
)

// simple is a simple command of a shell: a program with its arguments.
type simple struct {
	words      []string
	background bool     // the shell does not wait for it
	writes     []string // files that its output replaces
	unread     error    // why its script could not be read
}

// mostScript bounds a script that is read, and mostNested how deep commands are nested in commands.
const mostScript, mostNested = 256 << 10, 4

// flatten returns the programs that a command runs: itself without a wrapper such as env or timeout, or, if it is a
// shell, the commands of its code or script.
func flatten(files Files, words []string, depth int) []simple {
	words = unwrap(words)
	if len(words) == 0 || depth > mostNested {
		return nil
	}
	self := simple{words: words}
	shell := regexp.MustCompile(`^(ba|da|a|z|k)?sh$`)
	rest := words[1:]
	if path.Base(words[0]) == "busybox" && len(rest) > 0 {
		words, rest = rest, rest[1:]
	}
	if !shell.MatchString(path.Base(words[0])) {
		head, err := files.Head(words[0])
		line, _, _ := strings.Cut(string(head.Start), "\n")
		interpreter, isScript := strings.CutPrefix(line, "#!")
		fields := strings.Fields(interpreter)
		if err != nil || !isScript || len(fields) == 0 || !shell.MatchString(path.Base(fields[len(fields)-1])) &&
			!shell.MatchString(path.Base(fields[0])) {
			return []simple{self}
		}
		return withScript(files, self, words[0], depth)
	}
	for i, w := range rest {
		switch {
		case !strings.HasPrefix(w, "-"):
			return withScript(files, self, w, depth)
		case !strings.HasPrefix(w, "--") && strings.Contains(w, "c") && i+1 < len(rest):
			return flattenCode(files, rest[i+1], depth)
		}
	}
	return []simple{self}
}

// withScript returns a shell and the commands of its script.
func withScript(files Files, self simple, name string, depth int) []simple {
	if head, err := files.Head(name); err != nil || head.Dir {
		return []simple{self}
	}
	text, found, err := config.ReadIfAny(files, name)
	if self.unread = err; err != nil || !found || len(text) > mostScript {
		return []simple{self}
	}
	return append([]simple{self}, flattenCode(files, string(text), depth)...)
}

func flattenCode(files Files, code string, depth int) (all []simple) {
	parsed := parseShell(code)
	waits := slices.ContainsFunc(parsed, func(s simple) bool { return len(s.words) > 0 && s.words[0] == "wait" })
	for _, s := range parsed {
		s.words = unwrap(s.words)
		s.background = s.background && !waits
		if len(s.words) == 0 {
			all = append(all, s)
			continue
		}
		inner := flatten(files, s.words, depth+1)
		for i := range inner {
			inner[i].background = inner[i].background || s.background
			inner[i].writes = append(inner[i].writes, s.writes...)
		}
		all = append(all, inner...)
	}
	return all
}

// unwrap removes the keywords of a shell, assignments, and programs that run their arguments.
func unwrap(words []string) []string {
	assignment := regexp.MustCompile(`^\w+=`)
	for len(words) > 0 {
		switch w := words[0]; {
		case assignment.MatchString(w), slices.Contains([]string{
			"if", "then", "else", "elif", "do", "while", "until", "!", "{", "(", "exec", "command", "time", "eval",
		}, w):
			words = words[1:]
		case slices.Contains([]string{"env", "sudo", "timeout", "nice", "ionice", "chronic", "nohup", "stdbuf", "flock"}, path.Base(w)):
			words = words[1:]
			for len(words) > 0 && (strings.HasPrefix(words[0], "-") || assignment.MatchString(words[0]) ||
				regexp.MustCompile(`^[\d.]+[smhd]?$`).MatchString(words[0])) {
				words = words[1:]
			}
			if path.Base(w) == "flock" && len(words) > 0 { // its first argument is the lock
				words = words[1:]
			}
		default:
			return words
		}
	}
	return nil
}

// parseShell splits shell code into its simple commands. It ignores comments and here-documents, and expands nothing.
func parseShell(code string) (all []simple) {
	var now simple
	var word strings.Builder
	begun, redirected := false, false
	var quote byte
	endWord := func() {
		switch {
		case !begun:
		case redirected:
			now.writes = append(now.writes, word.String())
		default:
			now.words = append(now.words, word.String())
		}
		if begun {
			redirected = false
		}
		word.Reset()
		begun = false
	}
	end := func(background bool) {
		endWord()
		if now.background = background; len(now.words) > 0 || now.writes != nil {
			all = append(all, now)
		}
		now, redirected = simple{}, false
	}
	code = dropHereDocuments(code)
	for i := 0; i < len(code); i++ {
		c := code[i]
		next := byte(0)
		if i+1 < len(code) {
			next = code[i+1]
		}
		switch {
		case c == '\\' && quote != '\'':
			if i++; next != '\n' && next != 0 {
				word.WriteByte(next)
				begun = true
			}
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '"' || c == '\'':
			quote, begun = c, true
		case c == '#' && !begun:
			for i+1 < len(code) && code[i+1] != '\n' {
				i++
			}
		case c == '&' && next == '&', c == '|' && next == '|':
			end(false)
			i++
		case c == '&' && next == '>':
			endWord()
		case c == '>':
			if w := word.String(); w == "1" || w == "2" {
				word.Reset()
				begun = false
			}
			endWord()
			if next == '>' || next == '|' {
				i++
			}
			if next == '&' { // a copy of a descriptor
				for i+1 < len(code) && strings.IndexByte(" \t\n;", code[i+1]) < 0 {
					i++
				}
				continue
			}
			redirected = true
		case c == '&':
			end(true)
		case strings.IndexByte(";|\n(){}", c) >= 0 && (c != '{' && c != '}' || !begun):
			end(false)
		case strings.IndexByte(" \t\r", c) >= 0:
			endWord()
		default:
			word.WriteByte(c)
			begun = true
		}
	}
	end(false)
	return all
}

// dropHereDocuments removes the lines of here-documents.
func dropHereDocuments(code string) string {
	begin := regexp.MustCompile(`<<-?\s*["'\\]?(\w+)["']?`)
	var kept []string
	until := ""
	for line := range strings.SplitSeq(code, "\n") {
		if until != "" {
			if strings.TrimSpace(line) == until {
				until = ""
			}
			continue
		}
		if m := begin.FindStringSubmatch(line); m != nil && !strings.Contains(line, "<<<") {
			until = m[1]
			line = strings.Replace(line, m[0], "", 1)
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "\n")
}
