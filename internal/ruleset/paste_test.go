package ruleset_test

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"nodegate/internal/require"
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
		"lacks its closing quote":    regexp.MustCompile(`(?m)^(-A [^"\n]*"[^"\n]*) ([^"\n]*".*)$`).ReplaceAllString(save, "$1\n$2"),
	} {
		_, err := ruleset.Parse("", strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestWholePastes checks that a whole output is read behind the lines that a terminal, a chat or a log puts before it.
func TestWholePastes(t *testing.T) {
	save, listing := readFile(t, testdata+"iptables-save.txt"), readFile(t, testdata+"nft-list-ruleset.json")
	for _, before := range []string{
		"root@node17:~# iptables-save\n", "[root@node17 ~]$ sudo iptables-save\n[sudo] password for me: \n", "```\n", "# iptables-save\n",
		"Defaulted container \"x\" out of: x, y\n", "Warning: Permanently added 'node17' (ED25519)\n", "2026-11-29 10:00:00 started\n",
	} {
		for _, text := range []string{save, listing} {
			got, err := ruleset.Parse("x", strings.NewReader(before+text))
			require.NoError(t, err)
			want, err := ruleset.Parse("x", strings.NewReader(strings.Repeat("\n", strings.Count(before, "\n"))+text))
			require.NoError(t, err)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%q: the models differ", before)
			}
		}
		if _, err := ruleset.Parse("x", strings.NewReader(before+save+"```\nroot@node17:~#\n"+before+save)); err != nil {
			t.Errorf("two outputs: %v", err)
		}
	}
}
