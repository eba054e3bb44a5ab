package plain_test

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/plain"
	"nodegate/internal/require"
)

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"plain, ünïcödé 節点\tand\nlines":  "plain, ünïcödé 節点\tand\nlines",
		"\x1b[2J\x1b]0;title\a":          `\u001b[2J\u001b]0;title\u0007`,
		"over\rwritten":                  `over\u000dwritten`,
		"\u009b31m \u202eesrever \u200b": `\u009b31m \u202eesrever \u200b`,
		"a\xffb":                         `a\xffb`,
		"\U000e0041":                     `\udb40\udc41`,
	} {
		assert.Equal(t, plain.Escape(in), want, "Escape(%q", in)
	}
	// Escaping a JSON document does not change its meaning.
	before, _ := json.Marshal("a\u202eb\u009b\U000e0041")
	var got string
	err := json.Unmarshal([]byte(plain.Escape(string(before))), &got)
	assert.True(t, err == nil && got == "a\u202eb\u009b\U000e0041", "JSON: %q, %v", got, err)
}

// TestQuote: a shell parses each quoted word back to the original.
func TestQuote(t *testing.T) {
	for _, s := range []string{"eth0", "a';id;'", "", "-x", "a b", "$(id)", "`id`", "é", "a\nb", "*"} {
		out, err := exec.Command("sh", "-c", "printf %s "+plain.Quote(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("Quote(%q) = %s, which a shell parses as %q (%v)", s, plain.Quote(s), out, err)
		}
	}
	assert.True(t, plain.Quote("eth0.1") == "eth0.1", "a name that needs no quotes is quoted")
}

// TestWriter: only the colours of the Writer itself pass; a colour in text from outside is escaped.
func TestWriter(t *testing.T) {
	for colours, want := range map[bool]string{
		false: `ü\u001b[31mtheirs\u001b[0mours\u001b[2J節`,
		true:  `ü\u001b[31mtheirs\u001b[0m` + "\x1b[32mours\x1b[0m" + `\u001b[2J節`,
	} {
		for _, chunk := range []int{1, 1000} {
			if chunk == 1 && colours {
				continue // a sequence is written at once
			}
			f, err := os.CreateTemp(t.TempDir(), "")
			require.NoError(t, err)
			w := plain.NewWriter(f, colours)
			text := "ü\x1b[31mtheirs\x1b[0m" + w.Paint("32", "ours") + "\x1b[2J節\xc3"
			for rest := text; rest != ""; rest = rest[min(chunk, len(rest)):] {
				if n, err := io.WriteString(w, rest[:min(chunk, len(rest))]); err != nil || n != min(chunk, len(rest)) {
					t.Fatal(n, err)
				}
			}
			got, _ := os.ReadFile(f.Name())
			assert.Equal(t, string(got), want, "colours %t, %d bytes at a time: %q", colours, chunk, got)
			f.Close()
		}
	}
}
