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
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestResults: the lines are those of go test without -json, and the table has every skipped test.
func TestResults(t *testing.T) {
	var out strings.Builder
	r := results{out: &out}
	err := r.read(strings.NewReader(`
{"Action":"output","Package":"nodegate/a","Test":"TestOne","Output":"=== RUN   TestOne\n"}
{"Action":"output","Package":"nodegate/a","Test":"TestOne","Output":"    a_test.go:3: needs the program nft\n"}
{"Action":"output","Package":"nodegate/a","Test":"TestOne","Output":"--- SKIP: TestOne (0.00s)\n"}
{"Action":"skip","Package":"nodegate/a","Test":"TestOne"}
{"Action":"output","Package":"nodegate/a","Test":"TestScript","Output":"    testscript.go:9: needs the program nft\n"}
{"Action":"output","Package":"nodegate/a","Test":"TestScript","Output":"    testscript.go:5: WORK=$WORK\n"}
{"Action":"skip","Package":"nodegate/a","Test":"TestScript"}
{"Action":"output","Package":"nodegate/a","Output":"PASS\n"}
{"Action":"output","Package":"nodegate/a","Output":"ok  \tnodegate/a\t0.1s\n"}
{"Action":"pass","Package":"nodegate/a"}
{"Action":"output","Package":"nodegate/b","Test":"TestGood","Output":"    b_test.go:1: fine\n"}
{"Action":"pass","Package":"nodegate/b","Test":"TestGood"}
{"Action":"output","Package":"nodegate/b","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"nodegate/b","Test":"TestBad","Output":"    b_test.go:7: wrong\n"}
{"Action":"output","Package":"nodegate/b","Test":"TestBad","Output":"--- FAIL: TestBad (0.00s)\n"}
{"Action":"fail","Package":"nodegate/b","Test":"TestBad"}
{"Action":"output","Package":"nodegate/b","Test":"TestHung","Output":"panic: test timed out\n"}
{"Action":"output","Package":"nodegate/b","Output":"FAIL\tnodegate/b\t0.1s\n"}
{"Action":"fail","Package":"nodegate/b"}
{"Action":"build-output","ImportPath":"nodegate/c","Output":"c.go:1:1: syntax error\n"}
{"Action":"output","Package":"nodegate/d","Output":"?   \tnodegate/d\t[no test files]\n"}
{"Action":"skip","Package":"nodegate/d"}
`), nil)
	require.NoError(t, err)
	r.writeSkipped(parsePrograms(list))
	const want = `ok  	nodegate/a	0.1s
    b_test.go:7: wrong
--- FAIL: TestBad (0.00s)
panic: test timed out
FAIL	nodegate/b	0.1s
c.go:1:1: syntax error
?   	nodegate/d	[no test files]

Skipped on this machine: 2 tests
tests  need                                                         in
    2  the program nft (package nftables)                           a
To list them: go test -v ./... | grep -B1 -e '--- SKIP'
`
	assert.Equal(t, out.String(), want)
	if err := r.read(strings.NewReader("no JSON"), nil); err == nil {
		t.Error("accepted output that is not JSON")
	}
}

// TestProgress: a tick prints the packages that are being tested.
func TestProgress(t *testing.T) {
	var out strings.Builder
	r := results{out: &out, done: 3, running: map[string]*packageRun{"nodegate/units": {}, "nodegate/policy": {}}}
	r.writeProgress(70 * time.Second)
	r.running = nil
	r.writeProgress(10 * time.Second)
	assert.Equal(t, out.String(), "[1m10s] 3 packages done, running policy, units\n[10s] 3 packages done, compiling\n")
}

// TestInstall runs a stand-in for apt-get that knows one of two packages.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	const stub = "#!/bin/sh\necho \"$*\" >>\"$0.log\"\ncase \"$*\" in *chromium*) echo 'E: Unable to locate package'; exit 100; esac\n"
	require.NoError(t, os.WriteFile(dir+"/apt-get", []byte(stub), 0o755))
	t.Setenv("PATH", dir)
	m, ok := findManager()
	if !ok || m.name != "apt-get" {
		t.Fatalf("%v, %t", m.name, ok)
	}
	missing := missingPrograms([]program{{"nft", "nftables", "nftables", false}, {"iptables", "iptables", "iptables-nft", false},
		{"iptables-legacy", "iptables", "iptables-legacy", false}, {"chromium", "chromium", "chromium", true}, {"apt-get", "apt", "apt", false}})
	if got := m.packages(missing, false); !slices.Equal(got, []string{"iptables", "nftables"}) {
		t.Errorf("outside of CI: %q", got)
	}
	packages := m.packages(missing, true)
	if !slices.Equal(packages, []string{"chromium", "iptables", "nftables"}) {
		t.Errorf("in CI: %q", packages)
	}
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
			if name := string(m[1]); !listed[name] {
				t.Errorf("%s needs %s, which is not in programs", path, name)
			}
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) || found < 30 {
		t.Errorf("found %d, %v", found, err)
	}
}
