package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestSkipped: the table has every skipped test, with the reason that it logged.
func TestSkipped(t *testing.T) {
	var out strings.Builder
	skips, err := skippedTests(strings.NewReader(`{"Action":"output","Package":"nodegate/a","Test":"TestOne","Output":"=== RUN   TestOne\n"}
{"Action":"output","Package":"nodegate/a","Test":"TestOne","Output":"    a_test.go:3: needs the program nft\n"}
{"Action":"output","Package":"nodegate/a","Test":"TestOne","Output":"--- SKIP: TestOne (0.00s)\n"}
{"Action":"skip","Package":"nodegate/a","Test":"TestOne"}
{"Action":"output","Package":"nodegate/a","Test":"TestScript","Output":"    testscript.go:9: needs the program nft\n"}
{"Action":"output","Package":"nodegate/a","Test":"TestScript","Output":"    testscript.go:5: WORK=$WORK\n"}
{"Action":"skip","Package":"nodegate/a","Test":"TestScript"}
{"Action":"output","Package":"nodegate/b","Test":"TestGood","Output":"    b_test.go:1: needs nothing\n"}
{"Action":"pass","Package":"nodegate/b","Test":"TestGood"}
{"Action":"build-output","ImportPath":"nodegate/c","Output":"c.go:1:1: syntax error\n"}
{"Action":"skip","Package":"nodegate/d"}
`))
	require.NoError(t, err)
	writeSkipped(&out, skips, parsePrograms(list))
	const want = `
Skipped on this machine: 2 tests
tests  need                                                         in
    2  the program nft (package nftables)                           a
To list them: go test -v ./... | grep -B1 -e '--- SKIP'
`
	assert.Equal(t, out.String(), want)
	_, err = skippedTests(strings.NewReader("no JSON\n"))
	assert.True(t, err != nil, "accepted output that is not JSON")
}

// TestListIsComplete: the list has each program that a test outside of internal/e2e and images/release needs.
func TestListIsComplete(t *testing.T) {
	listed := map[string]bool{"go": true, "mkfifo": true, "sh": true} // every machine has the last two
	for _, p := range parsePrograms(list) {
		listed[p.name] = true
	}
	need := regexp.MustCompile(`(?:NeedProgram\(\w+, "|!exec:)([a-z0-9-]+)`)
	found := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "e2e" || d.Name() == "release" || d.Name() == ".git"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, ".txtar"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range need.FindAllSubmatch(text, -1) {
			found++
			name := string(m[1])
			assert.True(t, listed[name], "%s needs %s, which is not in programs", path, name)
		}
		return err
	})
	assert.True(t, (err == nil || errors.Is(err, fs.ErrNotExist)) && found >= 30, "found %d, %v", found, err)
}
