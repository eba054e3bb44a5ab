package config

import (
	"strings"
	"testing"

	"nodegate/internal/assert"
)

// The expected values follow from the states of src/basic/env-file.c in systemd.
func TestEnvironmentFile(t *testing.T) {
	for _, c := range []struct{ what, text, value string }{
		{"plain", "A=--x  --y \t\n", "--x  --y"},
		{"a comment before", "# A=1\n;A=2\n  A=3", "3"},
		{"the last of several", "A=1\nA=2\n", "2"},
		{"a line without an assignment", "export\nA=1\nB\n", "1"},
		{"in quotes, several lines", "A=\"\n  --fail-swap-on=false\n  --v=2\n\"\nB=1\n", "\n  --fail-swap-on=false\n  --v=2\n"},
		{"text like a comment or a variable in quotes", "A='--a\n# --b\nB=--c'\n", "--a\n# --b\nB=--c"},
		{"joined", "A=--a \\\n--b\n", "--a --b"},
		{"joined in quotes", "A=\"--a \\\n--b\" \n", "--a --b"},
		{"quotes inside a value belong to it", "A=--labels=\"a=b\"\n", "--labels=\"a=b\""},
		{"several quotes", "A=\"a \"'b' \"c\"\n", "a bc"},
		{"escaped", `A="\"\$\n\\"` + "\n", `"$\n\`},
		{"escaped outside quotes", `A=\"a\ ` + "\n", `"a `},
		{"not escaped", `A='\n'` + "\n", `\n`},
		{"Windows line ends", "A=a\r\n", "a"},
		{"empty", "A=\nB=1", ""},
		{"unterminated quotes", "A=\"a\n", "a\n"},
	} {
		assert.Diff(t, environmentFile(c.text)["A"], c.value, "%s", c.what)
	}
}

func FuzzEnvironmentFile(f *testing.F) {
	f.Add("A=\"\n--a\n\" 'b'\\\n#c\n;\nB=\n")
	f.Fuzz(func(t *testing.T, text string) {
		for name, value := range environmentFile(text) {
			if strings.Contains(name, "\n") || len(value) > len(text) {
				t.Fatalf("%q=%q in %q", name, value, text)
			}
		}
	})
}
