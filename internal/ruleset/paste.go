package ruleset

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// save is the command whose output this package reads.
const save = "run `iptables-save > rules.txt`, and ip6tables-save for IPv6"

// describeBinary describes an input by its first bytes if it is not text. It returns "" for text.
func describeBinary(head []byte) string {
	for _, format := range []struct{ magic, command string }{
		{"\x1f\x8b", "gzip -dc"}, {"\xfd7zXZ", "xz -dc"}, {"\x28\xb5\x2f\xfd", "zstd -dc"}, {"BZh", "bzip2 -dc"},
	} {
		if bytes.HasPrefix(head, []byte(format.magic)) {
			return "the input is compressed; run `" + format.command + " FILE | nodegate audit --rules -`"
		}
	}
	utf16 := len(head) > 1 && (head[0] == 0 || head[1] == 0)
	if utf16 || bytes.HasPrefix(head, []byte("\xff\xfe")) || bytes.HasPrefix(head, []byte("\xfe\xff")) {
		return "the input is UTF-16, as PowerShell writes it; run `iconv -f UTF-16 -t UTF-8 FILE | nodegate audit --rules -`"
	}
	return ""
}

// describePaste describes a line that is not from iptables-save, and the command to run instead. It returns "" if it does
// not recognise the line.
func describePaste(s string) string {
	switch {
	case strings.HasPrefix(s, "-P "), strings.HasPrefix(s, "-N "):
		return "this is the output of `iptables -S`; " + save
	case strings.HasPrefix(s, "Chain "):
		return "this is the output of `iptables -L`; " + save
	case strings.HasPrefix(s, "IP Virtual Server "), strings.HasPrefix(s, "-A -t "), strings.HasPrefix(s, "-A -u "),
		strings.HasPrefix(s, "-a -"):
		return "this is the output of `ipvsadm`; run `nodegate audit --kubeconfig FILE` on the node: it reads IPVS from the kernel"
	case strings.Contains(s, "\x1b["):
		return "the line contains terminal colours; " + save
	case strings.HasPrefix(s, ">"), strings.HasPrefix(s, "+"), strings.HasPrefix(s, "|"):
		return "the lines are quoted, as in mail or a difference; " + save
	case regexp.MustCompile(`^\d+[:\s]`).MatchString(s):
		return "the lines have numbers; " + save
	case slices.Contains([]string{"...", "[...]", "…", "[…]", "(...)", "<snip>", "[snip]", "<snipped>", "--snip--"}, strings.TrimSpace(s)):
		return "lines were cut out here, so that a loss does not show; " + save
	}
	return describeEdit(s)
}

// describeWord describes a word outside of quotes that iptables-save does not write. It returns "" for any other word.
func describeWord(w string) string {
	for _, quote := range []string{"\u201c", "\u201d", "\u201e", "\u2018", "\u2019", "\u00ab", "\u00bb"} {
		if strings.HasPrefix(w, quote) {
			return "the line contains typographic quotes, which an editor or chat put there; " + save
		}
	}
	if strings.HasPrefix(w, "\u2014") || strings.HasPrefix(w, "\u2013") {
		return "the line contains a dash in place of --, which an editor put there; " + save
	}
	return describeEdit(w)
}

// describeEdit describes what an editor or a browser has put into a text that iptables-save printed. It returns "" for any other text.
func describeEdit(s string) string {
	if strings.Contains(s, "&quot;") || strings.Contains(s, "&gt;") {
		return "the line contains HTML; " + save
	}
	if strings.Contains(s, "\u00a0") {
		return "the line contains no-break spaces, which an editor or browser put there; " + save
	}
	return ""
}
