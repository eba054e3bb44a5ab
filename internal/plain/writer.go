package plain

import (
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Writer escapes all text that is written to a file, terminal or pipe.
type Writer struct {
	to      *os.File
	colours bool
	rest    []byte // the first bytes of an incomplete character
}

// NewWriter returns a Writer to a file. With colours, it passes colour sequences (ECMA-48 SGR)
// unchanged, but no other control sequence.
func NewWriter(to *os.File, colours bool) *Writer { return &Writer{to: to, colours: colours} }

// File returns the file behind w, or nil.
func File(w io.Writer) *os.File {
	switch w := w.(type) {
	case *os.File:
		return w
	case *Writer:
		return w.to
	}
	return nil
}

func (w *Writer) Write(p []byte) (int, error) {
	text := string(append(w.rest, p...))
	w.rest = nil
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if last := text[len(text)-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRuneInString(last) {
				w.rest, text = []byte(last), text[:len(text)-i]
			}
			break
		}
	}
	if _, err := io.WriteString(w.to, w.escape(text)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w *Writer) escape(text string) string {
	if !w.colours || !strings.Contains(text, "\x1b[") {
		return Escape(text)
	}
	var b strings.Builder
	colour := regexp.MustCompile("\x1b\\[[0-9]{1,2}m")
	for text != "" {
		at := colour.FindStringIndex(text)
		if at == nil {
			at = []int{len(text), len(text)}
		}
		b.WriteString(Escape(text[:at[0]]) + text[at[0]:at[1]])
		text = text[at[1]:]
	}
	return b.String()
}
