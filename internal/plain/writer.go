package plain

import (
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Writer escapes all text that is written to a file, terminal or pipe.
type Writer struct {
	to   *os.File
	mark string // marks the colours of Paint, "" without colours
	rest []byte // the first bytes of an incomplete character
}

// NewWriter returns a Writer to a file. With colours, it passes the colours of Paint, but no control
// sequence of others: a process whose name sets a colour could hide the text after it.
func NewWriter(to *os.File, colours bool) *Writer {
	w := &Writer{to: to}
	if colours {
		w.mark = strconv.FormatUint(rand.Uint64()|1<<63, 10) // text from outside cannot know it
	}
	return w
}

// Paint returns word with a colour (ECMA-48 SGR), in a form that only this Writer shows.
func (w *Writer) Paint(colour, word string) string {
	if w.mark == "" {
		return word
	}
	return "\x1b[" + w.mark + colour + "m" + word + "\x1b[" + w.mark + "0m"
}

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
	if w.mark == "" || !strings.Contains(text, "\x1b[") {
		return Escape(text)
	}
	var b strings.Builder
	colour := regexp.MustCompile("\x1b\\[" + w.mark + "[0-9]{1,2}m")
	for text != "" {
		at := colour.FindStringIndex(text)
		if at == nil {
			at = []int{len(text), len(text)}
		}
		b.WriteString(Escape(text[:at[0]]) + strings.Replace(text[at[0]:at[1]], w.mark, "", 1))
		text = text[at[1]:]
	}
	return b.String()
}
