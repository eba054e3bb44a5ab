package ruleset_test

import (
	"regexp"
	"strings"
	"testing"

	"nodegate/internal/ruleset"
)

// TestPastes: text that people changed on the way is refused with the reason.
func TestPastes(t *testing.T) {
	save := readFile(t, testdata+"iptables-save.txt")
	each := func(before, after string) string {
		return before + strings.ReplaceAll(strings.TrimSuffix(save, "\n"), "\n", after+"\n"+before) + after + "\n"
	}
	middle := len(save) / 2
	for want, text := range map[string]string{
		"HTML":                       strings.ReplaceAll(save, `"`, "&quot;"),
		"a dash in place of --":      strings.ReplaceAll(save, "--", "—"),
		"a dash in place of --, ":    strings.ReplaceAll(save, "--", "–"),
		"quoted, as in mail":         each("> ", ""),
		"quoted, as in mail or a di": each("+", ""),
		"have numbers":               each("12  ", ""),
		"terminal colours":           each("\x1b[32m", "\x1b[0m"),
		"the line ends were lost":    strings.ReplaceAll(save, "\n", " "),
		"lines were cut out here":    save[:middle] + "\n[...]\n" + save[middle:],
		"truncated":                  save[:middle],
		"from sudo, ssh or kubectl":  "[sudo] password for me: \n" + save,
		"from sudo, ssh or kubectl;": "Defaulted container \"kube-proxy\" out of: kube-proxy\n" + save,
		"lacks its closing quote":    regexp.MustCompile(`(?m)^(-A [^"\n]*"[^"\n]*) ([^"\n]*".*)$`).ReplaceAllString(save, "$1\n$2"),
	} {
		_, err := ruleset.Parse("", strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
