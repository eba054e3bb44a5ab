package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is one line of `go test -json` (go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
}

// results prints what `go test` prints without -json, and collects the skipped tests.
type results struct {
	out     io.Writer
	running map[string]*packageRun
	skipped []skip
	done    int // packages
}

type skip struct{ pkg, test, reason string }

// packageRun has the output of one package's tests.
type packageRun struct {
	order  []string // tests in the order of their first output; "" is the package itself
	output map[string]*strings.Builder
	passed map[string]bool // passed or skipped
}

// module is removed from the packages' names in the table.
const module = "nodegate/"

// read reads events until go test ends. It prints where the tests are whenever it receives from ticks.
func (r *results) read(in io.Reader, ticks <-chan time.Time) error {
	r.running = map[string]*packageRun{}
	events, failed := make(chan event), make(chan error, 1)
	go func() {
		defer close(events)
		for d := json.NewDecoder(in); ; {
			var e event
			if err := d.Decode(&e); err != nil {
				failed <- err
				_, _ = io.Copy(io.Discard, in) // otherwise go test would wait for its reader
				return
			}
			events <- e
		}
	}()
	begin := time.Now()
	for {
		select {
		case e, more := <-events:
			if more {
				r.handle(e)
			} else if err := <-failed; !errors.Is(err, io.EOF) {
				return fmt.Errorf("reading the output of go test: %w", err)
			} else {
				return nil
			}
		case now := <-ticks:
			r.writeProgress(now.Sub(begin))
		}
	}
}

// progressTicks returns a channel that receives after 10 seconds, and then each minute until ctx ends.
func progressTicks(ctx context.Context) <-chan time.Time {
	ticks := make(chan time.Time)
	go func() {
		for wait := 10 * time.Second; ; wait = time.Minute {
			select {
			case now := <-time.After(wait):
				select {
				case ticks <- now:
				case <-ctx.Done():
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ticks
}

func (r *results) writeProgress(since time.Duration) {
	var running []string
	for name := range r.running {
		running = append(running, strings.TrimPrefix(name, module))
	}
	where := "compiling"
	if len(running) > 0 {
		where = "running " + shorten(running)
	}
	fmt.Fprintf(r.out, "[%s] %d packages done, %s\n", since.Round(time.Second), r.done, where)
}

func (r *results) handle(e event) {
	if e.Action == "build-output" {
		fmt.Fprint(r.out, e.Output)
		return
	}
	p := r.running[e.Package]
	if p == nil {
		p = &packageRun{output: map[string]*strings.Builder{}, passed: map[string]bool{}}
		r.running[e.Package] = p
	}
	switch e.Action {
	case "output":
		p.add(e.Test, e.Output)
	case "skip":
		if e.Test != "" {
			r.skipped = append(r.skipped, skip{strings.TrimPrefix(e.Package, module), e.Test, reason(p.text(e.Test))})
		}
		fallthrough
	case "pass":
		p.passed[e.Test] = true
		if e.Test != "" {
			return
		}
		// Of a package that passed, go test prints only the last line.
		r.done++
		lines := strings.SplitAfter(strings.TrimRight(p.text(""), "\n"), "\n")
		fmt.Fprintln(r.out, lines[len(lines)-1])
		delete(r.running, e.Package)
	case "fail":
		if e.Test != "" {
			return
		}
		r.done++
		for _, test := range p.order {
			if test != "" && !p.passed[test] {
				fmt.Fprint(r.out, p.text(test))
			}
		}
		fmt.Fprint(r.out, p.text(""))
		delete(r.running, e.Package)
	}
}

// marks matches the lines that only `go test -v` prints.
var marks = regexp.MustCompile(`^=== (RUN|PAUSE|CONT|NAME) `)

func (p *packageRun) add(test, output string) {
	if marks.MatchString(output) {
		return
	}
	b := p.output[test]
	if b == nil {
		b = &strings.Builder{}
		p.output[test] = b
		p.order = append(p.order, test)
	}
	b.WriteString(output)
}

func (p *packageRun) text(test string) string {
	if b := p.output[test]; b != nil {
		return b.String()
	}
	return ""
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
func (r *results) writeSkipped(programs []program) {
	if len(r.skipped) == 0 {
		return
	}
	count, where := map[string]int{}, map[string][]string{}
	for _, s := range r.skipped {
		count[s.reason]++
		where[s.reason] = append(where[s.reason], s.pkg)
	}
	fmt.Fprintf(r.out, "\nSkipped on this machine: %d tests\n%5s  %-60s %s\n", len(r.skipped), "tests", "need", "in")
	for _, why := range slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		if count[a] != count[b] {
			return count[b] - count[a]
		}
		return strings.Compare(a, b)
	}) {
		fmt.Fprintf(r.out, "%5d  %-60.60s %s\n", count[why], why+packageHint(programs, why), shorten(where[why]))
	}
	fmt.Fprintln(r.out, "To list them: go test -v ./... | grep -B1 -e '--- SKIP'")
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
	slices.Sort(packages)
	packages = slices.Compact(packages)
	const most = 3
	if len(packages) > most+1 {
		return fmt.Sprintf("%s and %d more packages", strings.Join(packages[:most], ", "), len(packages)-most)
	}
	return strings.Join(packages, ", ")
}
