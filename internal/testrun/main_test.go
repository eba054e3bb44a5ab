package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// TestInstall runs a stand-in for apt-get that knows one of two packages.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	const stub = "#!/bin/sh\necho \"$*\" >>\"$0.log\"\ncase \"$*\" in *chromium*) echo 'E: Unable to locate package'; exit 100; esac\n"
	require.NoError(t, os.WriteFile(dir+"/apt-get", []byte(stub), 0o755))
	t.Setenv("PATH", dir)
	m, ok := findManager()
	require.True(t, ok && m.name == "apt-get", "%v, %t", m.name, ok)
	missing := missingPrograms([]program{{"nft", "nftables", "nftables", false}, {"iptables", "iptables", "iptables-nft", false},
		{"iptables-legacy", "iptables", "iptables-legacy", false}, {"chromium", "chromium", "chromium", true}, {"apt-get", "apt", "apt", false}})
	got := m.packages(missing, false)
	assert.True(t, slices.Equal(got, []string{"iptables", "nftables"}), "outside of CI: %q", got)
	packages := m.packages(missing, true)
	assert.True(t, slices.Equal(packages, []string{"chromium", "iptables", "nftables"}), "in CI: %q", packages)
	m.install(t.Context(), packages)
	log, err := os.ReadFile(dir + "/apt-get.log")
	if lines := strings.Split(strings.TrimSpace(string(log)), "\n"); err != nil || len(lines) != 5 || !strings.HasPrefix(lines[0], "update") ||
		!strings.HasSuffix(lines[1], " chromium iptables nftables") || !strings.HasSuffix(lines[4], " nftables") {
		t.Errorf("%v: it ran\n%s", err, log)
	}
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
