package config

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// messageWords are the words that make up the messages of kubelet, iptables, nft, modprobe, systemd,
// the API server and the parsers of YAML and JSON consist.
//
//go:embed message_words.txt
var messageWords string

var knownMessageWords = sync.OnceValue(func() map[string]bool { return wordSet(messageWords) })

var (
	// Places in a source, klog's header, versions and exit codes.
	messagePattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([a-z0-9_]+\.go:[0-9]+|` +
			`\.\./libkmod/[a-z-]+\.c:[0-9]+|[IWEF][0-9]{4}|:?v?[0-9][0-9:.]*|0x[0-9a-f]{1,8}|!!\w+|nf_tables)$`)
	})
	camelWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[A-Z]+[a-z]*|[a-z]+|[0-9]+`) })
)

// LeftOut replaces a value that is not shown.
const LeftOut = "(value left out)"

// PlainMessage returns the message of a program without the values in it, which come from the
// program's arguments, environment and files: only words of messages, numbers, addresses, flags and
// paths remain, and the words in known, which the caller itself passed to the program. The message of
// klog's structured form is a constant of the program: only its keys' values are free.
func PlainMessage(text string, known ...string) string {
	constant := structuredMessage().FindString(text)
	given := map[string]bool{}
	for _, k := range known {
		for _, token := range strings.FieldsFunc(k, func(r rune) bool { return strings.ContainsRune(messageSeparators, r) }) {
			given[bareWord(token)] = true
		}
	}
	return constant + plainTokens(text[len(constant):], LeftOut, func(_, word string) bool { return given[word] || isMessageWord(word) })
}

// messageSeparators are the characters between words of messages.
const messageSeparators = " \t\r\n\f\"'`,;()[]{}=<>|!\\"

// plainTokens returns a text with mark in place of the words that shows rejects. before is the text before the word.
func plainTokens(text, mark string, shows func(before, word string) bool) string {
	var out strings.Builder
	last := 0
	for at := 0; at < len(text); at++ { // at is the beginning of a word, or a separator
		end := strings.IndexAny(text[at:], messageSeparators)
		if end < 0 {
			end = len(text) - at
		}
		if word := bareWord(text[at : at+end]); word != "" && !shows(text[:at], word) {
			out.WriteString(text[last:at] + mark)
			last = at + len(word)
		}
		at += end
	}
	if last == 0 {
		return text
	}
	return repeatedValue().ReplaceAllString(out.String()+text[last:], LeftOut)
}

// structuredMessage matches klog's header and message, before the keys: E1126 10:00:00.123456 7 run.go:72] "command failed" err="...".
var structuredMessage = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[IWEF]\d{4} [0-9:.]+ +\d+ [a-z0-9_]+\.go:\d+\] "[^"\\]*"`)
})

func bareWord(token string) string { return strings.TrimRight(token, ".:?") }

var repeatedValue = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\(value left out\)([ ,;=:]*\(value left out\))+`)
})

func isMessageWord(word string) bool {
	if messagePattern().MatchString(word) || isShown(word) {
		return true
	}
	// systemd's key=value and Go's Type.Field are words too.
	parts := strings.FieldsFunc(word, func(r rune) bool { return strings.ContainsRune(".:/_&*-", r) })
	return len(parts) > 0 && !slices.ContainsFunc(parts, func(part string) bool { return !isCamelWord(part) })
}

// isCamelWord reports whether a name such as kubeReservedCgroup consists of known words.
func isCamelWord(part string) bool {
	words := knownMessageWords()
	if words[strings.ToLower(part)] || len(part) <= 5 && strings.Trim(part, "0123456789") == "" {
		return true
	}
	if strings.IndexFunc(part, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) >= 0 {
		return false
	}
	known := 0
	for _, piece := range camelWord().FindAllString(part, -1) {
		if words[strings.ToLower(piece)] {
			known += len(piece)
		}
	}
	return known == len(part)
}

// PlainRules returns the rules of a packet filter without the text that their authors chose: the value of an option remains if it is
// made of known words or numbers, or names a state, type, set or link. kube-proxy's comments also name a Service.
func PlainRules(text string) string {
	if strings.HasPrefix(strings.TrimLeft(text, space), "{") { // kube-proxy's own tables
		return ruleText().ReplaceAllStringFunc(text, func(found string) string { return plainRuleText(found, true) })
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(ruleText().ReplaceAllStringFunc(line, func(found string) string {
			return plainRuleText(found, strings.HasPrefix(line, "-A KUBE-"))
		}))
	}
	return out.String()
}

var (
	ruleText = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(--[a-z0-9-]+ |"comment": ?)("(?:[^"\\]|\\.)*"|[^ \n-][^ \n]*)`)
	})
	serviceName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9-]{1,63}/[a-z0-9-]{1,63}(:[a-z0-9-]{0,63})?:?`)
	})
	namesInRules = sync.OnceValue(func() map[string]bool {
		return wordSet("--state --ctstate --ctdir --ctproto --match-set --add-set --del-set --map-set --tcp-flags --src-type --dst-type " +
			"--reject-with --icmp-type --icmpv6-type --physdev-in --physdev-out --mode --hashlimit-mode --algo --weekdays " +
			"--monthdays --dir --pol --proto --vproto --pkt-type --set-xmark --hook --icmpv4-type --chunk-types --tcp-option " +
			"--dport --sport --dports --sports --ports")
	})
)

// plainRuleText returns an option with its value. ofProxy is set for a rule of kube-proxy, whose text may begin with the name of a Service.
func plainRuleText(found string, ofProxy bool) string {
	m := ruleText().FindStringSubmatch(found)
	value := strings.Trim(m[2], `"`)
	if namesInRules()[strings.TrimSpace(m[1])] || strings.HasPrefix(value, "KUBE-") || strings.HasPrefix(value, "--") {
		return found
	}
	if ofProxy {
		value = serviceName().ReplaceAllString(value, "")
	}
	for _, word := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" ,/", r) }) {
		if word = strings.Trim(word, `():;,"\`); word != "" && !isMessageWord(word) {
			return m[1] + `"` + Mark + `"`
		}
	}
	return found
}
