package input

import (
	"bytes"
	"errors"
	"io"
	"strings"
)

// Limits of the input. The largest known dump (5,000 Services, 50,000 endpoints) is 16.5 MB in
// 215,802 lines. A rule takes up to 2 KiB of memory.
const (
	maxLine  = 1 << 20   // bytes in one line
	maxSize  = 256 << 20 // bytes in one input
	maxLines = 500_000
)

// Lines returns the lines of a text. A line is a substring of a large block, so one allocation
// serves thousands of lines.
type Lines struct {
	N int // number of the line that Next returned last

	r     io.Reader
	buf   []byte // read, but not yet part of a block
	block string // whole lines
	total int
	done  bool
}

// NewLines returns the lines of r.
func NewLines(r io.Reader) *Lines {
	return &Lines{r: r, buf: make([]byte, 0, 64<<10)}
}

// Next returns the next line without its line end; io.EOF after the last one. Any other error is an
// Error.
func (l *Lines) Next() (string, error) {
	for l.block == "" {
		if err := l.fillBlock(); err != nil {
			return "", err
		}
	}
	if l.N == maxLines {
		return "", Unknown(l.N+1, "input has more than %d lines", maxLines)
	}
	l.N++
	line := l.block
	if i := strings.IndexByte(line, '\n'); i >= 0 {
		line, l.block = line[:i], line[i+1:]
	} else {
		l.block = ""
	}
	return strings.TrimSuffix(line, "\r"), nil
}

func (l *Lines) fillBlock() error {
	for empty := 0; ; {
		if l.done {
			if len(l.buf) == 0 {
				return io.EOF
			}
			return l.takeBlock(len(l.buf))
		}
		if len(l.buf) == cap(l.buf) { // grow while a line does not fit
			l.buf = append(make([]byte, 0, min(2*cap(l.buf), maxLine+1)), l.buf...)
		}
		n, err := l.r.Read(l.buf[len(l.buf):cap(l.buf)])
		l.buf = l.buf[:len(l.buf)+n]
		l.total += n
		switch {
		case errors.Is(err, io.EOF):
			l.done = true
			continue
		case err != nil:
			return &Error{Line: l.N + 1, Msg: "reading text", Kind: ErrUnknown, Err: err}
		case l.total > maxSize:
			return Unknown(l.N+1, "input is larger than %d MiB", maxSize>>20)
		}
		if n == 0 {
			if empty++; empty > 100 {
				return &Error{Line: l.N + 1, Msg: "reading text", Kind: ErrUnknown, Err: io.ErrNoProgress}
			}
			continue
		}
		empty = 0
		if len(l.buf) < cap(l.buf) {
			continue
		}
		if i := bytes.LastIndexByte(l.buf, '\n'); i >= 0 {
			return l.takeBlock(i + 1)
		} else if len(l.buf) > maxLine {
			return Unreadable(l.N+1, "line is longer than %d MiB", maxLine>>20)
		}
	}
}

func (l *Lines) takeBlock(n int) error {
	l.block = string(l.buf[:n])
	l.buf = l.buf[:copy(l.buf, l.buf[n:])]
	if i := strings.IndexByte(l.block, 0); i >= 0 {
		return Unreadable(l.N+1+strings.Count(l.block[:i], "\n"), "not text: the line contains a zero byte")
	}
	return nil
}
