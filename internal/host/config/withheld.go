package config

import (
	_ "embed"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// ownWords are the words of the checks' own sentences.
//
//go:embed own_words.txt
var ownWords string

var knownOwnWords = sync.OnceValue(func() map[string]bool { return wordSet(ownWords) })

// Withheld is the texts of files whose words must not leave the program.
type Withheld struct {
	mu     sync.Mutex
	texts  map[string]string // of the files, by their names; "" of one that every user may read
	runs   map[string]string // the same, as letters and digits with spaces between
	parts  map[string]bool   // of the runs, those that a longer word may hold
	most   int               // the length of the longest part
	leaves map[string]bool   // words that Plain has judged
}

// Add adds the text of a file, or "" for a file whose words may leave.
func (w *Withheld) Add(name, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.texts == nil {
		w.texts, w.runs = map[string]string{}, map[string]string{}
	}
	if old, is := w.texts[name]; is && old == text {
		return
	}
	w.texts[name], w.leaves = text, map[string]bool{}
	if delete(w.runs, name); text != "" {
		w.runs[name] = " " + strings.Join(runs(text+" "+escape().ReplaceAllStringFunc(text, unescaped)), " ") + " "
	}
	w.parts, w.most = map[string]bool{}, 0
	for _, text := range w.runs {
		for part := range strings.FieldsSeq(text) {
			if len(part) >= long && !isOwn(part) {
				w.parts[part], w.most = true, max(w.most, len(part))
			}
		}
	}
}

// long is the length from which a part of a longer word counts: a parser splits words, and systemd joins the values of variables.
const long = 5

// isOwn reports whether letters and digits are a word of messages or of the checks.
func isOwn(run string) bool { return isCamelWord(run) || knownOwnWords()[run] }

// Plain returns a text without the words of the files. Those in known remain, words of messages, and words whose shape lacks a place for a
// secret, unless they are the value of an option that is not known.
func (w *Withheld) Plain(text, known string) string { return w.replace(text, known, LeftOut) }

// Mark stands in a copy for a word that another user may not read.
const Mark = "left-out"

// Copy returns the text of a file for a program of another user.
func (w *Withheld) Copy(name string, text []byte) []byte {
	if w == nil || !w.withholds(name) {
		return text
	}
	return []byte(w.replace(string(text), "", Mark))
}

func (w *Withheld) withholds(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.texts[name] != ""
}

func (w *Withheld) replace(text, known, mark string) string {
	if w == nil {
		return text
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.runs) == 0 {
		return text
	}
	return plainTokens(text, mark, func(before, word string) bool {
		if len(word) > 2 && isUnknownOption(before) && w.quotes(word) && !strings.Contains(known, word) {
			return false
		}
		leaves, judged := w.leaves[word]
		if !judged {
			leaves = !w.has(word, "") || isShown(word) && (!isPath(word) || w.names(word))
			w.leaves[word] = leaves
		}
		return leaves || !w.has(word, known)
	})
}

// has reports whether a part of a word, which is no word of messages, is in a file, and not in known.
func (w *Withheld) has(word, known string) bool {
	given := runs(known)
	return slices.ContainsFunc(runs(word), func(run string) bool {
		if slices.Contains(given, run) || isOwn(run) {
			return false
		}
		for from := range run {
			for to := from + long; to <= min(len(run), from+w.most); to++ {
				if w.parts[run[from:to]] {
					return true
				}
			}
		}
		if len(run) < long {
			run = " " + run + " "
		}
		for _, text := range w.runs {
			if strings.Contains(text, run) {
				return true
			}
		}
		return false
	})
}

// names reports whether a path is the kernel's, or of a file that was read, or stands in one. Another was made of words of a file.
func (w *Withheld) names(word string) bool {
	path, _, _ := strings.Cut(word, ":") // and a line
	is := strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/sys/") || w.quotes(word)
	for name := range w.texts {
		is = is || strings.HasSuffix(path, name) // a tree's paths begin with its root
	}
	return is
}

// quotes reports whether a word stands in a file as it is.
func (w *Withheld) quotes(word string) bool {
	for _, text := range w.texts {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// isUnknownOption reports whether a text ends where the value of an option begins that is not known: "x=", "--x ".
func isUnknownOption(text string) bool {
	rest := strings.TrimRight(text, ` "'`)
	option, assigns := strings.CutSuffix(rest, "=")
	option = strings.TrimRight(option, " ")
	option = option[strings.LastIndexAny(option, messageSeparators)+1:]
	return (assigns || len(option) > 1 && option[0] == '-' && len(rest) < len(text)) && !IsKnown(option)
}

// runs returns the letters and digits of a text, in lower case.
func runs(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

var escape = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)(?:\\x|%)[0-9a-f]{2}|\\u[0-9a-f]{4}`) })

// unescaped returns the character of an escape: \x41, %41, \u0041.
func unescaped(of string) string {
	n, _ := strconv.ParseUint(strings.TrimLeft(of, `\xuU%X`), 16, 32) // of a regular expression
	return string(rune(n))
}
