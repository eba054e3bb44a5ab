package config

import (
	"regexp"
	"strings"
	"sync"
)

var (
	// These matches and targets of iptables, and the comments in nft's JSON, hold text of the
	// program that wrote the rule.
	ruleText = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(--(?:comment|string|hex-string|log-prefix|nflog-prefix|header|uid-owner|gid-owner) |"comment": ?)` +
			`("(?:[^"\\]|\\.)*"|[^ \n]+)`)
	})
	// kube-proxy's comments name a Service, then use words of messages.
	serviceName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9-]{1,63}/[a-z0-9-]{1,63}(:[a-z0-9-]{0,63})?:?`)
	})
)

// PlainRules returns the rules of a packet filter without the text that their authors chose, but
// with kube-proxy's comments, by which it is judged.
func PlainRules(text string) string {
	return ruleText().ReplaceAllStringFunc(text, func(found string) string {
		m := ruleText().FindStringSubmatch(found)
		return m[1] + plainRuleText(m[2])
	})
}

// plainRuleText returns the text if it consists of the name of a Service and known words.
func plainRuleText(quoted string) string {
	bare := strings.Trim(quoted, `"`)
	words := strings.Fields(serviceName().ReplaceAllString(bare, ""))
	for _, word := range words {
		if !isMessageWord(strings.Trim(word, `():;,`)) {
			return `"` + placeholder + `"`
		}
	}
	return quoted
}
