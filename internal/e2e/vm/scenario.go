package vm

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Scenario is one end-to-end case: the changes to a node's file tree before it boots, and the conditions after each boot. It is read
// from a directory with these files and no others:
//
//	scenario.md     one sentence: the behaviour that the scenario proves
//	policy.hcl      optional: installed instead of the built-in policy
//	prepare.sh      optional: run on the host, sh -eu, with $ROOT (the tree), $NODEGATE (the binary) and $SCENARIO (this
//	                directory); without it: nodegate install --root $ROOT [--policy policy.hcl]
//	bootN.sh        run in the guest after boot N, sh -eu with rootfs/opt/vm/lib.sh, and must exit 0; bootN-M.sh runs
//	                after each of these boots; between two boots the machine reboots
//	bootN.cmdline   optional: words added to the kernel command line
//	console         optional: lines "bootN REGEXP" and "bootN ! REGEXP": some line of the serial console must match, or no
//	                line may match, until the end of boot N's script; bootN-M as above; # starts a comment
type Scenario struct {
	Folder
	Boots []Boot
}

// Folder is the common part of scenarios of every kind.
type Folder struct {
	Name        string
	Description string
	Dir         string
	Policy      string // path, or empty
	Prepare     string // path, or empty
}

// Boot is one boot of a Scenario.
type Boot struct {
	Script  string
	Cmdline string
	Console []Expectation
}

// Expectation is a regular expression that some line of the console must match, or that no line may match if Never is set.
type Expectation struct {
	Pattern *regexp.Regexp
	Never   bool
}

var bootName = regexp.MustCompile(`^boot([1-9][0-9]?)(?:-([1-9][0-9]?))?(\.sh|\.cmdline)?$`)

// maxBoots catches a mistyped range.
const maxBoots = 20

// Load reads every scenario of a directory.
func Load(dir string) ([]Scenario, error) { return LoadAll(dir, loadScenario) }

// LoadAll reads every scenario of a directory in the order of their names, and reports all errors.
func LoadAll[S any](dir string, load func(dir string) (S, error)) ([]S, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading scenarios: %w", err)
	}
	var all []S
	var wrong []error
	for _, e := range entries {
		s, err := load(filepath.Join(dir, e.Name()))
		if err != nil {
			wrong = append(wrong, fmt.Errorf("scenario %s: %w", e.Name(), err))
		}
		all = append(all, s)
	}
	return all, errors.Join(wrong...)
}

// ReadFolder reads a scenario's directory. It passes files that only one kind of scenario has to other. The error joins all errors.
func ReadFolder(dir string, other func(name, text string) error) (Folder, error) {
	f := Folder{Name: filepath.Base(dir), Dir: dir}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return f, err
	}
	var wrong []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		content, err := os.ReadFile(path)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		switch text := string(content); e.Name() {
		case "scenario.md":
			f.Description = strings.TrimSpace(text)
		case "policy.hcl":
			f.Policy = path
		case "prepare.sh":
			f.Prepare = path
		default:
			wrong = append(wrong, other(e.Name(), text))
		}
	}
	if f.Description == "" {
		wrong = append(wrong, errors.New("scenario.md is empty: describe what the scenario proves"))
	}
	return f, errors.Join(wrong...)
}

func loadScenario(dir string) (Scenario, error) {
	boots := map[int]*Boot{}
	at := func(n int) *Boot {
		if boots[n] == nil {
			boots[n] = &Boot{}
		}
		return boots[n]
	}
	folder, err := ReadFolder(dir, func(name, text string) error {
		if name == "console" {
			return parseExpectations(text, at)
		}
		return readBootFile(name, text, at)
	})
	s, wrong := Scenario{Folder: folder}, []error{err}
	for n := 1; n <= len(boots); n++ {
		if boots[n] == nil || boots[n].Script == "" {
			wrong = append(wrong, fmt.Errorf("boot%d.sh is missing", n))
			continue
		}
		s.Boots = append(s.Boots, *boots[n])
	}
	if len(boots) == 0 {
		wrong = append(wrong, fmt.Errorf("boot1.sh: %w", fs.ErrNotExist))
	}
	return s, errors.Join(wrong...)
}

// readBootFile stores bootN.sh, bootN-M.sh or bootN.cmdline.
func readBootFile(name, text string, at func(int) *Boot) error {
	first, last, suffix, err := parseBootRange(name)
	if err != nil || suffix == "" {
		return fmt.Errorf("%s: unknown file", name)
	}
	for n := first; n <= last; n++ {
		field := &at(n).Script
		if suffix == ".cmdline" {
			field = &at(n).Cmdline
			text = strings.Join(strings.Fields(text), " ")
		}
		if *field != "" {
			return fmt.Errorf("%s: boot %d already has such a file", name, n)
		}
		*field = text
	}
	return nil
}

// parseBootRange reads "bootN" and "bootN-M", with or without a file's suffix.
func parseBootRange(name string) (first, last int, suffix string, err error) {
	m := bootName.FindStringSubmatch(name)
	if m == nil {
		return 0, 0, "", fmt.Errorf("%q: want bootN or bootN-M", name)
	}
	first, err = strconv.Atoi(m[1])
	last = first
	if err == nil && m[2] != "" {
		last, err = strconv.Atoi(m[2])
	}
	if err != nil || last < first || last > maxBoots {
		return 0, 0, "", fmt.Errorf("%q: must be a range of boots from 1 to %d", name, maxBoots)
	}
	return first, last, m[3], nil
}

// parseExpectations reads a console file.
func parseExpectations(text string, at func(int) *Boot) error {
	var wrong []error
	lines := bufio.NewScanner(strings.NewReader(text))
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		boot, expression, _ := strings.Cut(line, " ")
		expression, never := strings.CutPrefix(strings.TrimSpace(expression), "! ")
		first, last, suffix, err := parseBootRange(boot)
		if err == nil && (suffix != "" || expression == "") {
			err = fmt.Errorf("want: bootN [!] REGEXP")
		}
		pattern, compileErr := regexp.Compile(expression)
		if err := errors.Join(err, compileErr); err != nil {
			wrong = append(wrong, fmt.Errorf("console:%d: %w", number, err))
			continue
		}
		for n := first; n <= last; n++ {
			at(n).Console = append(at(n).Console, Expectation{Pattern: pattern, Never: never})
		}
	}
	return errors.Join(append(wrong, lines.Err())...)
}

// Check compares the text of a console with the expectation.
func (e Expectation) Check(console string) error {
	for line := range strings.Lines(console) {
		line = strings.TrimRight(line, "\n")
		if !e.Pattern.MatchString(line) {
			continue
		}
		if e.Never {
			return fmt.Errorf("a line of the console matches /%s/ and must not: %s", e.Pattern, line)
		}
		return nil
	}
	if e.Never {
		return nil
	}
	return fmt.Errorf("no line of the console matches /%s/", e.Pattern)
}
