package policy

import (
	"slices"
	"strings"
	"time"
)

// Exec requires a program of the operator to exit with status 0.
type Exec struct {
	Metadata
	Name    string   // exec, or exec.NAME
	Command []string // the program's absolute path, and its arguments
	Timeout time.Duration
	Stages  []string // boot, run
}

// Program returns the program's path, or words for one that depends on an unknown fact.
func (e Exec) Program() string {
	if len(e.Command) == 0 {
		return "a program that depends on " + e.Unknown
	}
	return e.Command[0]
}

// maxExecTime is shorter than a round of watch.
const maxExecTime = 15 * time.Second

// isExec reports whether a check block is about a program.
func (b Stanza) isExec() bool {
	return b.Type == "check" && (b.Name == "exec" || strings.HasPrefix(b.Name, "exec."))
}

func (r *reader) decodeExec(b Stanza) (Exec, bool) {
	e := Exec{Metadata: r.decodeMetadata(b), Name: b.Name}
	before := len(r.diags)
	if name, named := strings.CutPrefix(b.Name, "exec."); named && (!isName(name, 63, "._-") || strings.ToLower(name) != name) {
		r.errorf(b.Range, "Not a name", "Name the check in lower-case letters, digits, dots, - and _, for example \"exec.gpu\"; %q is not such "+
			"a name.%s", b.Name, OddCharacter(b.Name))
	}
	e.Command = r.command(b.Get("command"), "command")
	if b.Get("command") == nil {
		r.errorf(b.Range, "Missing command", "Write the program and its arguments: command = [\"/usr/local/bin/check-gpu\", \"--all\"].")
	}
	e.Timeout = r.duration(b.Get("timeout"), "timeout", 10*time.Second, 10*time.Millisecond, maxExecTime)
	e.Stages = []string{"boot", "run"}
	if v, ok := r.value(b.Get("stages")); ok {
		if e.Stages = stringsOf(v); e.Stages == nil || slices.ContainsFunc(e.Stages, func(s string) bool { return s != "boot" && s != "run" }) {
			r.errorf(b.At("stages"), "Wrong value", "stages must be a list of \"boot\" and \"run\": a program runs only on the running machine.")
		}
	}
	return e, len(r.diags) == before
}

// mergeExecs reports two programs of one name.
func (r *reader) mergeExecs(all []Exec) {
	for i, e := range all {
		for _, o := range all[:i] {
			if o.Name == e.Name && o.Applies() && e.Applies() {
				r.errorf(e.Range, "Same name twice", "Check %q is already defined at %s. Rename one of the two, for example \"exec.gpu\".",
					e.Name, Place(o.Range))
			}
		}
	}
}

// EachExec returns one program of each name.
func (p *Policy) EachExec() []Exec {
	return oneOfEach(p.Execs, func(e Exec) string { return e.Name })
}
