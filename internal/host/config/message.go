package config

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// messageWords are the words that make up the messages of kubelet, iptables, nft, modprobe, systemd,
// the API server and the parsers of YAML and JSON consist.
//
//go:embed message_words.txt
var messageWords string

var knownMessageWords = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{}
	for word := range strings.FieldsSeq(messageWords) {
		all[word] = true
	}
	return all
})

var (
	messageToken = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^\s"'` + "`" + `,;()\[\]{}=<>|!\\]+`) })
	// Flags, places in a source, klog's header, exit codes and the placeholders of a recording.
	messagePattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(--?[a-z0-9-]+|[a-z0-9_]+\.go:[0-9]+|[IWEF][0-9]{4}|v?[0-9][0-9:.]*|0x[0-9a-f]{1,8}|` +
			placeholder + `-[0-9]+|!!\w+|nf_tables)$`)
	})
	camelWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[A-Z]+[a-z]*|[a-z]+|[0-9]+`) })
)

// valueLeftOut replaces a value in the message of a program.
const valueLeftOut = "(value left out)"

// PlainMessage returns the message of a program without the values in it, which come from the
// program's arguments, environment and files: only words of messages, numbers, addresses, flags and
// paths remain, and the words in known, which the caller itself passed to the program.
func PlainMessage(text string, known ...string) string {
	if text == "" {
		return ""
	}
	given := map[string]bool{}
	for _, k := range known {
		for _, word := range messageToken().FindAllString(k, -1) {
			given[word] = true
		}
	}
	text = messageToken().ReplaceAllStringFunc(text, func(token string) string {
		word := strings.TrimRight(token, ".:?")
		if word == "" || given[word] || given[token] || isMessageWord(word) {
			return token
		}
		return valueLeftOut + token[len(word):]
	})
	return repeatedValue().ReplaceAllString(text, valueLeftOut)
}

var repeatedValue = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\(value left out\)([ ,;=:]*\(value left out\))+`)
})

func isMessageWord(word string) bool {
	if messagePattern().MatchString(word) || isPlain(word) && !isPlainPath(word) || isPath(word) {
		return true
	}
	// systemd's key=value and Go's Type.Field are words too.
	parts := strings.FieldsFunc(word, func(r rune) bool { return strings.ContainsRune(".:/_&*-", r) })
	return len(parts) > 0 && !slices.ContainsFunc(parts, func(part string) bool { return !isCamelWord(part) })
}

// isCamelWord reports whether a name such as kubeReservedCgroup consists of known words.
func isCamelWord(part string) bool {
	words := knownMessageWords()
	if words[strings.ToLower(part)] {
		return true
	}
	if strings.IndexFunc(part, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) >= 0 {
		return false
	}
	for _, piece := range camelWord().FindAllString(part, -1) {
		if !words[strings.ToLower(piece)] {
			return false
		}
	}
	return true
}

// LeaveOut returns a program's message without the words that are values in its private files. Names of fields stay, and so do system
// paths and the words that constants returns, which the program itself contains.
func LeaveOut(text string, private [][]byte, constants func(words []string) map[string]bool) string {
	values, names := map[string]bool{}, map[string]bool{}
	for _, file := range private {
		addWords(file, values, names)
	}
	isPrivate := func(token string) bool {
		word := strings.TrimRight(token, ".:?")
		if word == "" || values[word] {
			return word != ""
		}
		cut := strings.HasSuffix(token, "...") // parsers quote the beginning of a long value
		for value := range values {
			if cut && strings.HasPrefix(value, word) || len(value) >= shortestInside && strings.Contains(word, value) {
				return true
			}
		}
		return false
	}
	var found []string
	for _, token := range messageToken().FindAllString(text, -1) {
		if word := strings.TrimRight(token, ".:?"); isPrivate(token) && !names[word] && !isPath(word) {
			found = append(found, word)
		}
	}
	if found == nil {
		return text
	}
	known := constants(found)
	return messageToken().ReplaceAllStringFunc(text, func(token string) string {
		word := strings.TrimRight(token, ".:?")
		if !slices.Contains(found, word) || known[word] {
			return token
		}
		return valueLeftOut + token[len(word):]
	})
}

// shortestInside bounds the values that are also searched inside words: a short one is part of many words.
const shortestInside = 8

// addWords adds the words of a YAML file's scalars to values, and its keys to names. All words of another file are values.
func addWords(text []byte, values, names map[string]bool) {
	addValue := func(value string) {
		for _, word := range messageToken().FindAllString(value, -1) {
			values[strings.TrimRight(word, ".:?")] = true
		}
	}
	var file yaml.Node
	if len(text) > mostYAML || yaml.Unmarshal(text, &file) != nil {
		addValue(string(text))
		return
	}
	var add func(n *yaml.Node)
	add = func(n *yaml.Node) { // an alias has no content
		for i, child := range n.Content {
			switch {
			case n.Kind == yaml.MappingNode && i%2 == 0:
				names[child.Value] = true
			case child.Kind == yaml.ScalarNode:
				addValue(child.Value)
			}
			add(child)
		}
	}
	add(&file)
}
