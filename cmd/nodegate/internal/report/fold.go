package report

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"nodegate/internal/host"
)

// Fold writes the output of render. On a terminal it folds the lines to the terminal's width.
func Fold(w io.Writer, render func(io.Writer) error) error {
	columns := columnsOf(w)
	if columns == 0 {
		return render(w)
	}
	var b bytes.Buffer
	if err := render(&b); err != nil {
		return err
	}
	_, err := io.WriteString(w, fold(b.String(), columns))
	return err
}

// columnsOf returns the width of the terminal behind w: COLUMNS, or the width that the
// kernel reports. It returns 0 if w is not a terminal or its width is not known.
func columnsOf(w io.Writer) int {
	f := terminal(w)
	if f == nil {
		return 0
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	return host.Columns(f)
}

// fold breaks long lines between words. The continuation is indented to the last
// column that begins in the left half of the line. A word that is too long stays
// whole, so that a path or an address can be copied.
func fold(text string, columns int) string {
	colour, gap := regexp.MustCompile("\x1b\\[[0-9]*m"), regexp.MustCompile(`  +`)
	var b strings.Builder
	for line := range strings.Lines(text) {
		bare := colour.ReplaceAllString(strings.TrimSuffix(line, "\n"), "")
		if utf8.RuneCountInString(bare) <= columns {
			b.WriteString(line)
			continue
		}
		indent := 0
		for _, g := range gap.FindAllStringIndex(bare, -1) {
			if end := utf8.RuneCountInString(bare[:g[1]]); end <= columns/2 {
				indent = end
			}
		}
		at := 0 // characters written of this line
		for word := range strings.SplitAfterSeq(line, " ") {
			bare := colour.ReplaceAllString(word, "")
			n := utf8.RuneCountInString(strings.TrimRight(bare, " \n"))
			if n > 0 && at > indent && at+n > columns {
				b.WriteString("\n" + strings.Repeat(" ", indent))
				at = indent
			}
			b.WriteString(word)
			at += utf8.RuneCountInString(bare)
		}
	}
	return regexp.MustCompile(` +\n`).ReplaceAllString(b.String(), "\n")
}
