package input_test

import (
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"nodegate/internal/assert"
	"nodegate/internal/input"
)

// endless returns text, and then one byte for ever.
func endless(text, then string) io.Reader {
	return io.MultiReader(strings.NewReader(text), forever(then[0]))
}

type forever byte

func (f forever) Read(p []byte) (int, error) {
	p[0] = byte(f)
	for n := 1; n < len(p); n *= 2 {
		copy(p[n:], p[:n])
	}
	return len(p), nil
}

// TestEndlessValue: one value without an end is refused before it takes the machine's memory; so is an endless list. SECURITY.md: bounded.
func TestEndlessValue(t *testing.T) {
	for what, c := range map[string]struct {
		in   io.Reader
		want string
	}{
		"a string as an item":     {endless("{\n\"items\": [\n\"", "a"), "line 3: one value is larger than 32 MiB"},
		"the metadata":            {endless("{\"metadata\": {\"a\": \"", "a"), "line 1: one value is larger than 32 MiB"},
		"an item of many strings": {endless("{\"items\": [{\"a\": [1", "["), ""}, // the decoder bounds the depth
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		in := input.NewJSON(c.in)
		err := in.Items("thing", func() error {
			var raw json.RawMessage
			return in.Decode(&raw)
		})
		runtime.ReadMemStats(&after)
		assert.ErrorContains(t, err, c.want, "%s", what)
		assert.True(t, c.want == "" || errors.Is(err, input.ErrUnknown), "%s: %v is not ErrUnknown", what, err)
		used := (after.TotalAlloc - before.TotalAlloc) >> 20
		assert.True(t, used <= 256, "%s: allocated %d MiB", what, used)
	}
}

// slowly returns little at a time, as TLS does.
type slowly struct{ io.Reader }

func (s slowly) Read(p []byte) (int, error) { return s.Reader.Read(p[:min(len(p), 4096)]) }

// TestManySpaces: the time for spaces is linear. A scan after every read would take minutes.
func TestManySpaces(t *testing.T) {
	in := input.NewJSON(slowly{endless("{\"items\": [", " ")})
	err := in.Items("thing", func() error { return nil })
	assert.ErrorContains(t, err, "one value is larger than 32 MiB")
	in = input.NewJSON(io.MultiReader(strings.NewReader("{\"items\": ["), iotest.ErrReader(io.ErrUnexpectedEOF)))
	err = in.Items("thing", func() error { return nil })
	assert.True(t, errors.Is(err, io.ErrUnexpectedEOF) && errors.Is(err, input.ErrUnknown), "a broken connection: %v", err)
}

// TestEndlessLines: lines without an end are refused.
func TestEndlessLines(t *testing.T) {
	l := input.NewLines(endless("a\nb", "\n"))
	for {
		_, err := l.Next()
		if err == nil {
			continue
		}
		want := "line 500001: input has more than 500000 lines"
		assert.True(t, err.Error() == want && errors.Is(err, input.ErrUnknown), "%v, want %s", err, want)
		return
	}
}

// TestLargeValue: a value below the limit is read, however much the decoder reads ahead.
func TestLargeValue(t *testing.T) {
	in := input.NewJSON(strings.NewReader("{\"items\": [\"" + strings.Repeat("a", 20<<20) + "\", \"b\"]}"))
	var sizes []int
	err := in.Items("thing", func() error {
		var s string
		err := in.Decode(&s)
		sizes = append(sizes, len(s))
		return err
	})
	assert.True(t, err == nil && len(sizes) == 2 && sizes[0] == 20<<20 && sizes[1] == 1, "%v, %v", sizes, err)
}
