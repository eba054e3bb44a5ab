// Package assert fails a test that can go on. The format and arguments at the end name the case.
package assert

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nodegate/internal/require"
)

// Equal fails the test unless got is want.
func Equal[T comparable](t testing.TB, got, want T, about ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%sgot %+v\nwant %+v", name(about), got, want)
	}
}

// True fails the test with a message unless ok.
func True(t testing.TB, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Errorf(format, args...)
	}
}

// NoError fails the test with err, unless err is nil.
func NoError(t testing.TB, err error, about ...any) {
	t.Helper()
	if err != nil {
		t.Errorf("%s%v", name(about), err)
	}
}

// Contains fails the test unless got contains a text.
func Contains(t testing.TB, got, text string, about ...any) {
	t.Helper()
	if !strings.Contains(got, text) {
		t.Errorf("%sgot %s\nwant %q in it", name(about), got, text)
	}
}

// Diff fails the test with the differences between two values, if there are any.
func Diff(t testing.TB, got, want any, about ...any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s(-want +got)\n%s", name(about), d)
	}
}

// Golden fails the test with the differences between a file and got, if there are any. UPDATE=1 writes the file.
func Golden(t testing.TB, file, got string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	Diff(t, strings.Split(got, "\n"), strings.Split(string(require.ReadFile(t, file)), "\n"), "%s (-file +test; UPDATE=1 rewrites it)", file)
}

// ErrorContains fails the test unless err is an error with a text.
func ErrorContains(t testing.TB, err error, text string, about ...any) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%sgot error %v\nwant %q", name(about), err, text)
	}
}

// name returns the beginning of a message.
func name(about []any) string {
	if len(about) == 0 {
		return ""
	}
	return fmt.Sprintf(about[0].(string), about[1:]...) + ": "
}
