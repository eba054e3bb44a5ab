// Package assert fails a test that can go on. The format and arguments at the end name the case.
package assert

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Equal fails the test unless got is want.
func Equal[T comparable](t testing.TB, got, want T, about ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%sgot %+v\nwant %+v", name(about), got, want)
	}
}

// Diff fails the test with the differences between two values, if there are any.
func Diff(t testing.TB, got, want any, about ...any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s(-want +got)\n%s", name(about), d)
	}
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
