package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// module is removed from the packages' names in the table.
const module = "nodegate/"

type skip struct{ pkg, test, reason string }

// skippedTests reads the events of `go test -json` (go doc test2json) and returns each skipped test with its reason.
func skippedTests(events io.Reader) ([]skip, error) {
	var skips []skip
	output := map[skip]string{}
	for lines := bufio.NewReader(events); ; {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return skips, nil
		}
		var e struct{ Action, Package, Test, Output string }
		if err == nil {
			err = json.Unmarshal(line, &e)
		}
		if err != nil {
			return skips, fmt.Errorf("reading the events of go test: %w", err)
		}
		test := skip{pkg: strings.TrimPrefix(e.Package, module), test: e.Test}
		switch {
		case e.Test == "":
		case e.Action == "output":
			output[test] += e.Output
		case e.Action == "skip":
			skips = append(skips, skip{test.pkg, test.test, reason(output[test])})
		case e.Action == "pass" || e.Action == "fail":
			delete(output, test)
		}
	}
}

// logged matches a line of t.Skip.
var logged = regexp.MustCompile(`(?m)^\s+[^\s:]+\.go:\d+: (.*)$`)

// reason returns the reason that a skipped test logged. A testscript logs its script after it.
func reason(output string) string {
	last := "no reason logged"
	for _, line := range logged.FindAllStringSubmatch(output, -1) {
		if why, ok := strings.CutPrefix(line[1], "needs "); ok {
			return why
		}
		last = line[1]
	}
	return last
}

// writeSkipped prints a table of the skipped tests: how many, what they need, and their packages.
func writeSkipped(out io.Writer, skips []skip, programs []program) {
	if len(skips) == 0 {
		return
	}
	where := map[string][]string{}
	for _, s := range skips {
		where[s.reason] = append(where[s.reason], s.pkg)
	}
	fmt.Fprintf(out, "\nSkipped on this machine: %d tests\n%5s  %-60s %s\n", len(skips), "tests", "need", "in")
	for _, why := range slices.SortedFunc(maps.Keys(where), func(a, b string) int {
		if n := len(where[b]) - len(where[a]); n != 0 {
			return n
		}
		return strings.Compare(a, b)
	}) {
		fmt.Fprintf(out, "%5d  %-60.60s %s\n", len(where[why]), why+packageHint(programs, why), shorten(where[why]))
	}
	fmt.Fprintln(out, "To list them: go test -v ./... | grep -B1 -e '--- SKIP'")
}

// packageHint names the Debian package of a missing program.
func packageHint(programs []program, why string) string {
	name, ok := strings.CutPrefix(why, "the program ")
	i := slices.IndexFunc(programs, func(p program) bool { return p.name == path.Base(name) })
	if !ok || i < 0 || programs[i].debian == name {
		return ""
	}
	return " (package " + programs[i].debian + ")"
}

// shorten lists the first packages.
func shorten(packages []string) string {
	packages = slices.Compact(slices.Sorted(slices.Values(packages)))
	const most = 3
	if len(packages) > most+1 {
		return fmt.Sprintf("%s and %d more packages", strings.Join(packages[:most], ", "), len(packages)-most)
	}
	return strings.Join(packages, ", ")
}
