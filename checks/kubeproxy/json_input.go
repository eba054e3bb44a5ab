package kubeproxy

import (
	"encoding/json"
	"errors"
	"io"
	"sort"
	"strings"
)

// jsonInput reads JSON within bounds and remembers where lines begin, so that an offset can be told as a line.
type jsonInput struct {
	r        io.Reader
	dec      *json.Decoder
	read     int64
	newlines []int64
	err      error // of the reader, or the bound
}

// maxNewlines bounds what is remembered: later lines are not told.
const maxNewlines = 4 << 20

func newJSONInput(r io.Reader) *jsonInput {
	in := &jsonInput{r: r}
	in.dec = json.NewDecoder(in)
	in.dec.UseNumber()
	return in
}

func (in *jsonInput) Read(p []byte) (int, error) {
	if in.err != nil {
		return 0, in.err
	}
	n, err := in.r.Read(p)
	for i, b := range p[:n] {
		if b == '\n' && len(in.newlines) < maxNewlines {
			in.newlines = append(in.newlines, in.read+int64(i))
		}
	}
	if in.read += int64(n); in.read > maxInput {
		in.err = unknown(0, "input is larger than %d MiB", maxInput>>20)
		return 0, in.err
	}
	if err != nil && !errors.Is(err, io.EOF) {
		in.err = &InputError{Msg: "reading JSON", Kind: ErrUnknown, Err: err}
		return n, in.err
	}
	return n, err
}

// line tells in which line an offset lies.
func (in *jsonInput) line(offset int64) int {
	return 1 + sort.Search(len(in.newlines), func(i int) bool { return in.newlines[i] >= offset })
}

func (in *jsonInput) here() int { return in.line(in.dec.InputOffset()) }

// fail turns a decoder's error into one that names the line.
func (in *jsonInput) fail(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var input *InputError
	switch {
	case in.err != nil:
		return in.err
	case errors.As(err, &input):
		return err
	case errors.Is(err, io.EOF) && in.read == 0:
		return unknown(0, "the input is empty")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return unreadable(in.here(), "cut off: the JSON has no end")
	case errors.As(err, &syntax):
		return unreadable(in.here(), "not JSON: %v", syntax)
	case errors.As(err, &kind):
		return unreadable(in.here(), "%s is a %s", strings.ToLower(kind.Field), kind.Value)
	}
	return unreadable(in.here(), "%v", err)
}

// open expects a delimiter.
func (in *jsonInput) open(want json.Delim, what string) error {
	t, err := in.dec.Token()
	if err != nil {
		return in.fail(err)
	}
	if t != want {
		return unreadable(in.here(), "%s: %q is wanted, not %v", what, want.String(), t)
	}
	return nil
}

// items streams the items of a list as the API and kubectl print it. It never holds more than one item.
func (in *jsonInput) items(what string, each func() error) error {
	if err := in.open('{', what); err != nil {
		return err
	}
	found := false
	for in.dec.More() {
		key, err := in.dec.Token()
		if err != nil {
			return in.fail(err)
		}
		if key != "items" {
			if err := in.skip(); err != nil {
				return err
			}
			continue
		}
		found = true
		if err := in.open('[', what+" items"); err != nil {
			return err
		}
		for in.dec.More() {
			if err := each(); err != nil {
				return in.fail(err)
			}
		}
		if _, err := in.dec.Token(); err != nil {
			return in.fail(err)
		}
	}
	if _, err := in.dec.Token(); err != nil {
		return in.fail(err)
	}
	if !found {
		return unreadable(in.here(), "not a list of %ss: no items", what)
	}
	return nil
}

// skip passes over one value without holding it.
func (in *jsonInput) skip() error {
	for depth := 0; ; {
		t, err := in.dec.Token()
		if err != nil {
			return in.fail(err)
		}
		if d, ok := t.(json.Delim); ok {
			switch d {
			case '{', '[':
				depth++
			default:
				depth--
			}
		}
		if depth == 0 {
			return nil
		}
	}
}
