package lint

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"nodegate/policy"
	"nodegate/policy/kernels"
)

// checkProgram reports a command that a rule names, also as a word of a shell's, unless it is about this machine.
func (r *reading) checkProgram(where string, command []string, at hcl.Range) {
	words := strings.Fields(strings.Join(command, " "))
	if len(words) == 0 ||
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
func (r *reading) checkHoldsNothing(m policy.Metadata, b policy.Stanza, why string) {
	if b.Get("severity") != nil && m.Severity == policy.Block {
		r.warnf(b.At("severity"), "Holds nothing", "%s never holds kubelet, although its severity is \"block\": %s, so the gate does not "+
			"inspect it. Write severity = \"warn\" if that is meant.", b.Name, why)
	}
}

func (r *reading) checkExec(e policy.Exec, b policy.Stanza) {
	forShell := regexp.MustCompile(`(?m)^(?:/\S*\*\S*|\$\{?[A-Za-z_]\w*\}?|[|]+|&&|>\S*)$`).FindString(strings.Join(e.Command, "\n"))
	readers := []string{"sh", "bash", "dash", "find", "grep", "awk", "sed"} // of patterns
	switch {
	case r.names && len(e.Command) > 0 && strings.Contains(e.Command[0], " "):
		r.warnf(b.At("command"), "One path", "%q is read as the path of a program. Write each argument as a separate element.", e.Command[0])
	case r.names && forShell != "" && !slices.Contains(readers, path.Base(e.Command[0])):
		r.warnf(b.At("command"), "No shell", "No shell runs, so the program gets %q as it is. Write command = [\"/bin/sh\", \"-c\", \"...\"], "+
			"with the whole line as the last string.", forShell)
	}
	if e.Severity == policy.Block && slices.Contains(e.Stages, "boot") {
		r.checkProgram("exec", e.Command, b.At("command"))
	}
	if !slices.Contains(e.Stages, "boot") {
		r.checkHoldsNothing(e.Metadata, b, "stages has no \"boot\"")
		if e.Drift == policy.Ignore {
			r.warnf(b.At("drift"), "Never runs", "%s runs at no stage: it is not in the gate, and watch ignores it. Remove drift, or add \"boot\" "+
				"to stages.", e.Name)
		}
	}
}
