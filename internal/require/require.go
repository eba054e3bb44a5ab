// Package require ends a test that cannot go on. The format and arguments at the end name the case.
package require

import (
	"fmt"
	"os"
	"testing"
)

// NoError ends the test with err, unless err is nil.
func NoError(t testing.TB, err error, about ...any) {
	t.Helper()
	if err != nil && len(about) > 0 {
		t.Fatalf("%s: %v", fmt.Sprintf(about[0].(string), about[1:]...), err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// True ends the test with a message unless ok.
func True(t testing.TB, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Fatalf(format, args...)
	}
}

// ReadFile returns the content of a file, or ends the test.
func ReadFile(t testing.TB, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	NoError(t, err)
	return content
}
