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

// Scenario is one end-to-end case: what is done to a node's file tree before it boots, and what must hold after each boot.
// It is read from a folder that holds these files and no others:
//
//	scenario.md     one sentence: what the scenario proves
//	policy.hcl      optional: installed instead of the built-in policy
//	prepare.sh      optional: run on the host, sh -eu, with $ROOT the tree, $NODEGATE the binary and $SCENARIO this
//	                folder; without it: nodegate install --root $ROOT [--policy policy.hcl]
//	bootN.sh        run in the guest after boot N, sh -eu with rootfs/opt/vm/lib.sh, and must exit 0; bootN-M.sh is run
//	                after each of these boots; between two boots the machine reboots
//	bootN.cmdline   optional: words added to the kernel command line
//	console         optional: lines "bootN REGEXP" and "bootN ! REGEXP": what some line of the serial console must, or
//	                no line may, match by the end of boot N's script; bootN-M as above; # starts a comment line
type Scenario struct {
	Folder
	Boots []Boot
}

// Folder is what the folder of every kind of scenario has.
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

// Expectation is a regular expression that some line of the console matches; or none, where Never is set.
type Expectation struct {
	Pattern *regexp.Regexp
	Never   bool
}

var bootName = regexp.MustCompile(`^boot([1-9][0-9]?)(?:-([1-9][0-9]?))?(\.sh|\.cmdline)?$`)

// maxBoots bounds a mistyped range.
const maxBoots = 20

// Load reads every scenario of a folder.
func Load(dir string) ([]Scenario, error) { return LoadAll(dir, load) }

// LoadAll reads every scenario of a folder, in the order of their names, and reports all that is wrong with them.
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

// ReadFolder reads a scenario's folder, and gives every file that is of one kind of scenario only to other. The error
// joins all that is wrong.
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
		wrong = append(wrong, errors.New("scenario.md does not say what it proves"))
	}
	return f, errors.Join(wrong...)
}

func load(dir string) (Scenario, error) {
	boots := map[int]*Boot{}
	at := func(n int) *Boot {
		if boots[n] == nil {
			boots[n] = &Boot{}
		}
		return boots[n]
	}
	folder, err := ReadFolder(dir, func(name, text string) error {
		if name == "console" {
			return expectations(text, at)
		}
		return bootFile(name, text, at)
	})
	s, wrong := Scenario{Folder: folder}, []error{err}
	for n := 1; n <= len(boots); n++ {
		if boots[n] == nil || boots[n].Script == "" {
			wrong = append(wrong, fmt.Errorf("no boot%d.sh", n))
			continue
		}
		s.Boots = append(s.Boots, *boots[n])
	}
	if len(boots) == 0 {
		wrong = append(wrong, fmt.Errorf("boot1.sh: %w", fs.ErrNotExist))
	}
	return s, errors.Join(wrong...)
}

// bootFile stores bootN.sh, bootN-M.sh or bootN.cmdline.
func bootFile(name, text string, at func(int) *Boot) error {
	first, last, suffix, err := bootRange(name)
	if err != nil || suffix == "" {
		return fmt.Errorf("%s: not a file of a scenario", name)
	}
	for n := first; n <= last; n++ {
		field := &at(n).Script
		if suffix == ".cmdline" {
			field = &at(n).Cmdline
			text = strings.Join(strings.Fields(text), " ")
		}
		if *field != "" {
			return fmt.Errorf("%s: boot %d has another", name, n)
		}
		*field = text
	}
	return nil
}

// bootRange reads "bootN" and "bootN-M", with or without a file's suffix.
func bootRange(name string) (first, last int, suffix string, err error) {
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
		return 0, 0, "", fmt.Errorf("%q: not a range of boots up to %d", name, maxBoots)
	}
	return first, last, m[3], nil
}

// expectations reads a console file.
func expectations(text string, at func(int) *Boot) error {
	var wrong []error
	lines := bufio.NewScanner(strings.NewReader(text))
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		boot, expression, _ := strings.Cut(line, " ")
		expression, never := strings.CutPrefix(strings.TrimSpace(expression), "! ")
		first, last, suffix, err := bootRange(boot)
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

// Check compares a console's text with the expectation.
func (e Expectation) Check(console string) error {
	for line := range strings.Lines(console) {
		line = strings.TrimRight(line, "\n")
		if !e.Pattern.MatchString(line) {
			continue
		}
		if e.Never {
			return fmt.Errorf("the console says what it must not, /%s/: %s", e.Pattern, line)
		}
		return nil
	}
	if e.Never {
		return nil
	}
	return fmt.Errorf("no line of the console matches /%s/", e.Pattern)
}
