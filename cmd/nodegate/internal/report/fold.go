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

// Fold writes a text; where w is a terminal, in lines that are no wider than it.
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

// columnsOf returns the width of the terminal behind w: COLUMNS, or what the
// kernel says. It is 0 where there is no terminal, or it does not say.
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

// fold breaks the lines that are too long between words. A line goes on below its
// last column that begins in its left half. A word that is too long stays whole, so
// that a path or an address can be copied.
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
		at := 0 // what is written of this line
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
