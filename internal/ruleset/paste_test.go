package ruleset_test

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// TestPastes: text that people changed on the way is refused.
func TestPastes(t *testing.T) {
	save := string(require.ReadFile(t, testdata+"iptables-save.txt"))
	each := func(before, after string) string {
		return before + strings.ReplaceAll(strings.TrimSuffix(save, "\n"), "\n", after+"\n"+before) + after + "\n"
	}
	middle := len(save) / 2
	for i, text := range []string{
		strings.ReplaceAll(save, `"`, "&quot;"), strings.ReplaceAll(save, "--", "—"), strings.ReplaceAll(save, "--", "–"),
		strings.ReplaceAll(save, `"`, "“"), each("> ", ""), each("+", ""), each("12  ", ""), each("\x1b[32m", "\x1b[0m"),
		strings.ReplaceAll(save, "\n", " "), save[:middle] + "\n[...]\n" + save[middle:], save[:middle], "\x1f\x8b\x08\x01abc",
		"\xff\xfe*\x00n\x00", "-P INPUT ACCEPT\n-N X\n", "-A -t 10.96.0.1:443 -s rr\n", "table ip kube-proxy {\n",
		regexp.MustCompile(`(?m)^(-A [^"\n]*"[^"\n]*) ([^"\n]*".*)$`).ReplaceAllString(save, "$1\n$2"),
	} {
		if _, err := ruleset.Parse("", strings.NewReader(text)); err == nil {
			t.Errorf("text %d is read: %.80q", i, text)
		}
	}
}

// TestWholePastes checks that a whole output is read behind the lines that a terminal, a chat or a log puts before it.
func TestWholePastes(t *testing.T) {
	save, listing := string(require.ReadFile(t, testdata+"iptables-save.txt")), string(require.ReadFile(t, testdata+"nft-list-ruleset.json"))
	for _, before := range []string{
		"root@node17:~# iptables-save\n", "[root@node17 ~]$ sudo iptables-save\n[sudo] password for me: \n", "```\n", "# iptables-save\n",
		"Defaulted container \"x\" out of: x, y\n", "Warning: Permanently added 'node17' (ED25519)\n", "2026-11-29 10:00:00 started\n",
	} {
		for _, text := range []string{save, listing} {
			got, err := ruleset.Parse("x", strings.NewReader(before+text))
			require.NoError(t, err)
			want, err := ruleset.Parse("x", strings.NewReader(strings.Repeat("\n", strings.Count(before, "\n"))+text))
			require.NoError(t, err)
			assert.True(t, reflect.DeepEqual(got, want), "%q: the models differ", before)
		}
		_, err := ruleset.Parse("x", strings.NewReader(before+save+"```\nroot@node17:~#\n"+before+save))
		assert.NoError(t, err, "two outputs")
	}
}
