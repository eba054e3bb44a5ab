package input

import (
	"encoding/json"
	"errors"
	"io"
	"sort"
	"strings"
)

// JSON reads JSON within bounds and remembers where lines begin, so that an error can name the line of an offset.
type JSON struct {
	*json.Decoder // with UseNumber

	Version string // resourceVersion of the list that Items has read

	r        io.Reader
	read     int64
	newlines []int64
	err      error // from the reader, or because a limit was reached
}

// maxNewlines limits the number of line offsets in memory: an error after the last one is reported
// for that line.
const maxNewlines = 4 << 20

// maxValue limits one value, which the decoder keeps whole, with up to three times its size. An API server's object
// has at most 1.5 MiB, the limit of etcd; nft prints kube-proxy's map of 100,000 ports as one value of 20 MiB.
const maxValue = 32 << 20

// maxFields limits the fields of a list beside its items and metadata: an API server sends apiVersion and kind.
const maxFields = 100

// NewJSON returns a decoder of r.
func NewJSON(r io.Reader) *JSON {
	in := &JSON{r: r}
	in.Decoder = json.NewDecoder(counting{in})
	in.UseNumber()
	return in
}

// counting is the reader behind a decoder; it records the line offsets.
type counting struct{ *JSON }

func (in counting) Read(p []byte) (int, error) {
	if in.err != nil {
		return 0, in.err
	}
	if in.read-in.InputOffset() > maxValue { // the decoder reads on only while its value is incomplete
		in.err = Unknown(in.Line(), "one value is larger than %d MiB", maxValue>>20)
		return 0, in.err
	}
	// The decoder scans the spaces before a value again after every read, so a reader that returns little at a time, as TLS does,
	// would make that quadratic.
	n, err := 0, error(nil)
	for tries := 0; n < len(p) && err == nil; tries++ {
		var more int
		if more, err = in.r.Read(p[n:]); more > 0 {
			n, tries = n+more, 0
		} else if tries > 100 {
			err = io.ErrNoProgress
		}
	}
	for i, b := range p[:n] {
		if b == '\n' && len(in.newlines) < maxNewlines {
			in.newlines = append(in.newlines, in.read+int64(i))
		}
	}
	if in.read += int64(n); in.read > maxSize {
		in.err = Unknown(0, "input is larger than %d MiB", maxSize>>20)
		return 0, in.err
	}
	if err != nil && !errors.Is(err, io.EOF) {
		in.err = &Error{Msg: "reading JSON", Kind: ErrUnknown, Err: err}
		return n, in.err
	}
	return n, err
}

// Line returns the number of the line that the decoder has reached.
func (in *JSON) Line() int {
	offset := in.InputOffset()
	return 1 + sort.Search(len(in.newlines), func(i int) bool { return in.newlines[i] >= offset })
}

// Fail turns a decoder's error into one that names the line.
func (in *JSON) Fail(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var input *Error
	switch {
	case in.err != nil:
		return in.err
	case errors.As(err, &input):
		return err
	case errors.Is(err, io.EOF) && in.read == 0:
		return Unknown(0, "the input is empty")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Unreadable(in.Line(), "cut off: the JSON is incomplete")
	case errors.As(err, &syntax):
		return Unreadable(in.Line(), "not JSON: %v", syntax)
	case errors.As(err, &kind):
		return Unreadable(in.Line(), "%s must not be a %s", strings.ToLower(kind.Field), kind.Value)
	}
	return Unreadable(in.Line(), "%v", err)
}

// Open expects a delimiter; what is the input's name in the error.
func (in *JSON) Open(want json.Delim, what string) error {
	t, err := in.Token()
	if err != nil {
		return in.Fail(err)
	}
	if t != want {
		return Unreadable(in.Line(), "%s: expected %q", what, want.String())
	}
	return nil
}

// Items streams the items of a list as the API and kubectl print it; each decodes one item. Only
// one item is in memory at a time.
func (in *JSON) Items(what string, each func() error) error {
	if err := in.Open('{', what); err != nil {
		return err
	}
	found, fields := false, 0
	for in.More() {
		key, err := in.Token()
		if err != nil {
			return in.Fail(err)
		}
		switch key {
		case "items":
		case "metadata":
			if err := in.metadata(); err != nil {
				return err
			}
			continue
		default:
			if fields++; fields > maxFields {
				return Unreadable(in.Line(), "not a list of %ss: more than %d fields", what, maxFields)
			}
			var skipped json.RawMessage
			if err := in.Decode(&skipped); err != nil {
				return in.Fail(err)
			}
			continue
		}
		found = true
		if err := in.Open('[', what+" items"); err != nil {
			return err
		}
		for in.More() {
			if err := each(); err != nil {
				return in.Fail(err)
			}
		}
		if _, err := in.Token(); err != nil {
			return in.Fail(err)
		}
	}
	if _, err := in.Token(); err != nil {
		return in.Fail(err)
	}
	if !found {
		return Unreadable(in.Line(), "not a list of %ss: no items", what)
	}
	return nil
}

// metadata stores the version of a list, and ignores all other metadata.
func (in *JSON) metadata() error {
	var raw json.RawMessage
	if err := in.Decode(&raw); err != nil {
		return in.Fail(err)
	}
	var m struct{ ResourceVersion string }
	if json.Unmarshal(raw, &m) == nil {
		in.Version = m.ResourceVersion
	}
	return nil
}
