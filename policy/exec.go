package policy

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"nodegate/policy/kernels"
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
func (b block) isExec() bool {
	return b.Type == "check" && (b.Name == "exec" || strings.HasPrefix(b.Name, "exec."))
}

func (r *reader) decodeExec(b block) (Exec, bool) {
	e := Exec{Metadata: r.decodeMetadata(b), Name: b.Name}
	before := len(r.diags)
	if name, named := strings.CutPrefix(b.Name, "exec."); named && (!isName(name, 63, "._-") || strings.ToLower(name) != name) {
		r.errorf(b.Range, "Not a name", "Name the check in lower-case letters, digits, dots, - and _, for example \"exec.gpu\"; %q is not such "+
			"a name.%s", b.Name, oddCharacter(b.Name))
	}
	e.Command = r.command(b.get("command"), "command")
	forShell := regexp.MustCompile(`(?m)^(?:/\S*\*\S*|\$\{?[A-Za-z_]\w*\}?|[|]+|&&|>\S*)$`).FindString(strings.Join(e.Command, "\n"))
	readers := []string{"sh", "bash", "dash", "find", "grep", "awk", "sed"} // of patterns
	switch {
	case b.get("command") == nil:
		r.errorf(b.Range, "Missing command", "Write the program and its arguments: command = [\"/usr/local/bin/check-gpu\", \"--all\"].")
	case r.names && len(e.Command) > 0 && strings.Contains(e.Command[0], " "):
		r.warnf(b.at("command"), "One path", "%q is read as the path of a program. Write each argument as a separate element.", e.Command[0])
	case r.names && forShell != "" && !slices.Contains(readers, path.Base(e.Command[0])):
		r.warnf(b.at("command"), "No shell", "No shell runs, so the program gets %q as it is. Write command = [\"/bin/sh\", \"-c\", \"...\"], "+
			"with the whole line as the last string.", forShell)
	}
	e.Timeout = r.duration(b.get("timeout"), "timeout", 10*time.Second, 10*time.Millisecond, maxExecTime)
	e.Stages = []string{"boot", "run"}
	if v, ok := r.value(b.get("stages")); ok {
		if e.Stages = stringsOf(v); e.Stages == nil || slices.ContainsFunc(e.Stages, func(s string) bool { return s != "boot" && s != "run" }) {
			r.errorf(b.at("stages"), "Wrong value", "stages must be a list of \"boot\" and \"run\": a program runs only on the running machine.")
		}
	}
	if e.Severity == Block && slices.Contains(e.Stages, "boot") {
		r.checkProgram("exec", e.Command, b.at("command"))
	}
	if r.catalogue != nil && !slices.Contains(e.Stages, "boot") {
		r.checkHoldsNothing(e.Metadata, b, "stages has no \"boot\"")
		if e.Drift == Ignore {
			r.warnf(b.at("drift"), "Never runs", "%s runs at no stage: it is not in the gate, and watch ignores it. Remove drift, or add \"boot\" "+
				"to stages.", e.Name)
		}
	}
	return e, len(r.diags) == before
}

// checkProgram reports a command that a rule names, also as a word of a shell's, unless it is about this machine.
func (r *reader) checkProgram(where string, command []string, at hcl.Range) {
	words := strings.Fields(strings.Join(command, " "))
	if r.catalogue == nil || len(words) == 0 ||
		slices.ContainsFunc(words, func(w string) bool {
			return regexp.MustCompile(`127\.0\.0\.1|localhost|\[::1\]|169\.254\.|unix`).MatchString(w)
		}) {
		return
	}
	runs := slices.Contains([]string{"sh", "bash", "dash", "env", "timeout", "systemctl"}, path.Base(words[0]))
	for _, rule := range kernels.About("program", where) {
		for i, w := range words {
			name := path.Base(strings.Trim(w, `"';&|()`))
			if (i == 0 || runs) && slices.Contains(rule.Words[1:], name) || where == "exec" && strings.Contains(w, "://") {
				r.warnf(at, "Harmful program", "%s: %s.", w, rule.Effect)
				return
			}
		}
	}
}

// checkHoldsNothing reports a block that is written to hold kubelet and that the gate never inspects.
func (r *reader) checkHoldsNothing(m Metadata, b block, why string) {
	if r.catalogue != nil && b.get("severity") != nil && m.Severity == Block {
		r.warnf(b.at("severity"), "Holds nothing", "%s never holds kubelet, although its severity is \"block\": %s, so the gate does not "+
			"inspect it. Write severity = \"warn\" if that is meant.", b.Name, why)
	}
}

// checkTimes reports a program and a probe that take longer than one start of kubelet.
func (p *Policy) checkTimes(r *reader) {
	report := func(m Metadata, what string, timeout time.Duration) {
		if r.catalogue != nil && m.Applies() && p.Gate.Budget > 0 && timeout >= p.Gate.Budget {
			r.warnf(m.Range, "Longer than the budget", "%s may take %s, but the gate's budget is %s (%s): the gate would decide without its "+
				"result. Shorten timeout, or lengthen budget.", what, timeout, p.Gate.Budget, p.Gate.at())
		}
	}
	for _, e := range p.Execs {
		if slices.Contains(e.Stages, "boot") {
			report(e.Metadata, e.Name, e.Timeout)
		}
	}
	for _, o := range p.Probes {
		if o.Name == Service {
			continue // the gate does not run it
		}
		report(o.Metadata, "probe "+o.Name, o.Timeout)
	}
}

// at returns the gate's position, or words if no file has one.
func (g Gate) at() string {
	if g.Range.Filename == "" {
		return "the default"
	}
	return place(g.Range)
}

// mergeExecs reports two programs of one name.
func (r *reader) mergeExecs(all []Exec) {
	for i, e := range all {
		for _, o := range all[:i] {
			if o.Name == e.Name && o.Applies() && e.Applies() {
				r.errorf(e.Range, "Same name twice", "Check %q is already defined at %s. Rename one of the two, for example \"exec.gpu\".",
					e.Name, place(o.Range))
			}
		}
	}
}

// EachExec returns one program of each name.
func (p *Policy) EachExec() []Exec {
	return oneOfEach(p.Execs, func(e Exec) string { return e.Name })
}
