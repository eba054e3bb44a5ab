// Command words counts the lines of comments and documents that match the patterns of words.txt, prints those above
// a pattern's limit, and then exits with status 1. Its arguments are the files.
package main

import (
	_ "embed"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

//go:embed words.txt
var list string

// pattern is one row of words.txt.
type pattern struct {
	most   int
	in     string // code or docs
	re     *regexp.Regexp
	better string
	found  []string // lines, with their place
}

func main() {
	patterns, err := parse(list)
	if err != nil {
		fmt.Fprintln(os.Stderr, "words.txt:", err)
		os.Exit(2)
	}
	for _, name := range os.Args[1:] {
		text, err := os.ReadFile(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		count(patterns, name, string(text))
	}
	if report(patterns) {
		os.Exit(1)
	}
}

// parse reads the rows of words.txt.
func parse(list string) ([]*pattern, error) {
	var patterns []*pattern
	for n, line := range strings.Split(strings.TrimSpace(list), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "\t")
		if len(columns) != 4 {
			return nil, fmt.Errorf("line %d: %d columns, want 4", n+1, len(columns))
		}
		most, err := strconv.Atoi(columns[0])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		re, err := regexp.Compile("(?i)" + columns[2])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		patterns = append(patterns, &pattern{most: most, in: columns[1], re: re, better: columns[3]})
	}
	return patterns, nil
}

// count adds the matching lines of a file to the patterns. Of a Go file only the lines that are comments count.
func count(patterns []*pattern, name, text string) {
	in := "docs"
	if strings.HasSuffix(name, ".go") {
		in = "code"
	}
	for n, line := range strings.Split(text, "\n") {
		comment := strings.TrimSpace(line)
		directive := strings.HasPrefix(comment, "//go:") || strings.Contains(comment, "nolint")
		if in == "code" && (!strings.HasPrefix(comment, "//") || directive) || strings.Contains(line, "words: ") {
			continue
		}
		for _, p := range patterns {
			if p.in == in && p.re.MatchString(line) {
				p.found = append(p.found, fmt.Sprintf("%s:%d: %s", name, n+1, comment))
			}
		}
	}
}

// report prints each pattern that has too many lines, and reports whether there was one.
func report(patterns []*pattern) bool {
	failed := false
	for _, p := range patterns {
		if len(p.found) <= p.most {
			continue
		}
		failed = true
		fmt.Printf("%d lines match %s (at most %d); write instead: %s\n", len(p.found), p.re, p.most, p.better)
		for _, line := range p.found {
			fmt.Println("  " + line)
		}
	}
	return failed
}
