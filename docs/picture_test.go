package docs_test

import (
	"errors"
	"fmt"
	"html"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// The sizes of the picture of a terminal, in columns and pixels.
const (
	pictureColumns = 104
	pictureChar    = 8
	pictureLine    = 19
)

// TestPicture: the picture of a terminal in README is the output of check for a recorded node, with its colours.
func TestPicture(t *testing.T) {
	needNodegate(t)
	cmd := exec.CommandContext(t.Context(), "nodegate", "check", "--snapshot", "testdata/readme-node.json", "--color", "always")
	out, err := cmd.Output()
	var failed *exec.ExitError
	require.True(t, errors.As(err, &failed) && failed.ExitCode() == 1, "check: %v", err)
	text := strings.NewReplacer(" --snapshot testdata/readme-node.json", "", "on node17: ", "").Replace(string(out))
	text = regexp.MustCompile(`, [0-9.]+(µs|ms|s)\)`).ReplaceAllString(text, ", 520µs)")
	have := terminalPicture("\x1b[1m$ nodegate check\x1b[0m\n" + text)
	const file = "pictures/check.svg"
	assert.Golden(t, file, have)
}

// terminalPicture draws the output of a program, with the colours that it sets.
func terminalPicture(text string) string {
	var b strings.Builder
	rows := 0
	colour := regexp.MustCompile("\x1b\\[([0-9]*)m([^\x1b]*)\x1b\\[0m")
	for line := range strings.Lines(text) {
		for _, part := range foldColoured(strings.TrimSuffix(line, "\n")) {
			rows++
			fmt.Fprintf(&b, `<text x="16" y="%d">`, 40+rows*pictureLine)
			at := 0
			for _, m := range colour.FindAllStringSubmatchIndex(part, -1) {
				fmt.Fprintf(&b, `%s<tspan class="c%s">%s</tspan>`, html.EscapeString(part[at:m[0]]), part[m[2]:m[3]], html.EscapeString(part[m[4]:m[5]]))
				at = m[1]
			}
			b.WriteString(html.EscapeString(part[at:]) + "</text>\n")
		}
	}
	width, height := 32+pictureColumns*pictureChar, 60+rows*pictureLine
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" font-family="monospace" font-size="13">
<style>
text { fill: #e6e9ee; white-space: pre; } .c1 { font-weight: bold; } .c2 { fill: #9aa4b2; }
.c31 { fill: #ff7b72; } .c32 { fill: #56d364; } .c33 { fill: #e3b341; }
</style>
<rect width="%[1]d" height="%[2]d" rx="8" fill="#14171c"/>
<circle cx="20" cy="20" r="6" fill="#ff5f57"/><circle cx="40" cy="20" r="6" fill="#febc2e"/><circle cx="60" cy="20" r="6" fill="#28c840"/>
%[3]s</svg>
`, width, height, b.String())
}

// foldColoured folds a line as a terminal of pictureColumns shows it: after a blank, indented to its last column. No colour spans a fold.
func foldColoured(line string) []string {
	bare := regexp.MustCompile("\x1b\\[[0-9]*m")
	var parts []string
	indent := ""
	for utf8.RuneCountInString(bare.ReplaceAllString(line, "")) > pictureColumns {
		cut := 0
		for i, r := range line {
			if r == ' ' && utf8.RuneCountInString(bare.ReplaceAllString(line[:i], "")) <= pictureColumns {
				cut = i
			}
		}
		if cut <= len(indent) {
			break
		}
		if indent == "" && strings.HasPrefix(line, "        ") {
			indent = strings.Repeat(" ", 16)
		}
		parts = append(parts, line[:cut])
		line = indent + strings.TrimLeft(line[cut:], " ")
	}
	return append(parts, line)
}
