package checks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"

	"nodegate/internal/host"
	"nodegate/internal/plain"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// Problem is a known failure: its symptom on a node, and how to detect it. Its check only reads. A policy requests it by name, in a
// check block. `nodegate explain` and docs/checks.md print its texts.
type Problem struct {
	Name       string          // lower case, dotted, stable: "vxlan.checksum"
	Stages     []Stage         // when it can be detected
	NotAll     bool            // stage all omits it: it fails on every running machine
	Severity   policy.Severity // the default if the policy sets none
	Detects    string          // the fault, in one sentence
	Symptom    string          // what users see
	How        string          // how it is detected
	Remedy     string          // what to do; State.Remedy is more specific
	TradeOff   string          // the cost of the remedy, or ""
	Ref        string          // the source of this knowledge
	Later      bool            // checked when kubelet starts: apply, which runs early at boot, omits it
	Concurrent bool            // it waits for another program or in a namespace, so it runs in parallel to the other checks
	AtBoot     bool            // a warning that the gate prints when it opens: it only reads a few files, and needs Later
	Announced  bool            // the gate prints it although it does not hold: at stage boot it warns, whatever its severity
	Weighs     bool            // its result depends on parameters, links or modules of the policy
	Moves      bool            // other programs may be changing its subject: inspect again if it does not pass
	Inspect    func(context.Context, *host.Host, *policy.Policy) (State, error)
}

// Asked returns the problems that a policy requests and that can be detected at a stage. At stage
// boot, which is the gate's, problems of severity warn are omitted unless AtBoot is set: they cannot hold
// the node, so they run at stage run and do not delay a start. An announced problem stays, and only warns.
func Asked(problems []Problem, p *policy.Policy, stage Stage) []Check {
	var list []Check
	asks := p.Applying()
	for _, problem := range problems {
		i := findBlock(p.Problems, problem.Name)
		if i < 0 || !slices.Contains(problem.Stages, stage) && (stage != All || problem.NotAll) {
			continue
		}
		meta := p.Problems[i].Metadata
		meta.Severity = cmp.Or(meta.Severity, problem.Severity)
		meta.Reason = cmp.Or(meta.Reason, problem.Detects)
		meta.Ref = cmp.Or(meta.Ref, problem.Ref)
		switch {
		case stage == Boot && problem.Announced:
			meta.Severity = policy.Warn
		case stage == Boot && meta.Severity == policy.Warn && !problem.AtBoot:
			continue
		}
		list = append(list, requestedProblem{problem, meta, asks})
	}
	return list
}

// findBlock returns the index of the check block for a problem, or -1. It prefers a block that
// applies, then one whose condition is unknown, then one that is off.
func findBlock(blocks []policy.Problem, name string) int {
	best := -1
	for i, b := range blocks {
		switch {
		case b.Name != name:
		case b.Applies():
			return i
		case best < 0 || blocks[best].Off && b.Unknown != "":
			best = i
		}
	}
	return best
}

// Early returns the checks that can run before kubelet's prerequisites exist: its runtime, and the
// files that kubeadm or cloud-init write later in the boot. It omits probes, which send packets.
func Early(list []Check) []Check {
	return slices.DeleteFunc(slices.Clone(list), func(c Check) bool {
		if _, is := c.(Sender); is || runsProgram(c) {
			return true
		}
		a, is := c.(requestedProblem)
		return is && a.Later
	})
}

// Sender is a check that sends packets through namespaces that it creates, which
// nodegate-apply.service may not do. It guards kubelet's start, not the machine's.
type Sender interface{ SendsPackets() }

// Runner is a check that runs a program of the policy, which may have effects of its own: plan omits it.
type Runner interface{ RunsProgram() }

func runsProgram(c Check) bool {
	_, is := c.(Runner)
	return is
}

// WithoutPrograms returns the checks that run no program of the policy.
func WithoutPrograms(list []Check) []Check {
	return slices.DeleteFunc(slices.Clone(list), runsProgram)
}

// ProgramsLeftOut returns a result for each program of the policy in a list that was applied without them. If nothing else was in it,
// they are unknown: an apply that looked at nothing proves nothing.
func ProgramsLeftOut(list []Check, alone bool) []Result {
	var all []Result
	for _, c := range list {
		if !runsProgram(c) || c.Metadata().Off {
			continue
		}
		const why = "apply runs no program of the policy; `nodegate check` and the gate run it"
		r := Result{Name: c.Name(), Metadata: c.Metadata(), Verdict: verdict.Skipped, State: State{Skip: why}}
		if alone {
			r.Verdict, r.State.Skip, r.Err = verdict.Unknown, "", errors.New(why)
		}
		all = append(all, r)
	}
	return all
}

func isConcurrent(c Check) bool {
	a, is := c.(requestedProblem)
	return is && a.Concurrent || runsProgram(c)
}

func isAnnounced(c Check) bool {
	a, is := c.(requestedProblem)
	return is && a.Announced
}

// requestedProblem is a problem that a policy requests.
type requestedProblem struct {
	Problem
	metadata policy.Metadata
	policy   *policy.Policy
}

func (a requestedProblem) Name() string              { return a.Problem.Name }
func (a requestedProblem) Metadata() policy.Metadata { return a.metadata }

func (a requestedProblem) Inspect(ctx context.Context, h *host.Host) (State, error) {
	s, err := host.Conclude(h, a.question(), a.Name(), func(h *host.Host) (State, error) { return a.Problem.Inspect(ctx, h, a.policy) })
	if s.Remedy == "" && !s.Pass && s.Skip == "" {
		s.Remedy = a.Remedy
	}
	if !h.Live() {
		s.Remedy = inTree(h.Root, s.Remedy)
	}
	return s, err
}

// question returns the name of the problem and a sum of the inputs of its conclusion.
func (a requestedProblem) question() string {
	sum, p := fnv.New64(), a.policy
	of := []any{p.Gate.Unit}
	if a.Weighs {
		for _, s := range p.Sysctls {
			of = append(of, s.Key, s.Value, s.OneOf, s.Min, s.Max)
		}
		for _, l := range p.Links {
			of = append(of, l.Match)
		}
		for _, m := range p.Modules {
			of = append(of, m.Name)
		}
	}
	text, _ := json.Marshal(of) // of strings and numbers
	_, _ = sum.Write(text)
	return fmt.Sprintf("%s %x", a.Name(), sum.Sum64())
}

// inTree returns a remedy whose commands change the file tree at root instead of the machine. A tree has no running services.
func inTree(root, remedy string) string {
	quoted := plain.Quote(root)
	remedy = regexp.MustCompile(",? then run `systemctl (daemon-reload|reload|restart)[^`]*`").ReplaceAllString(remedy, "")
	return regexp.MustCompile("`[^`]+`|\\b(?:from|in) /\\S+").ReplaceAllStringFunc(remedy, func(command string) string {
		if word, name, _ := strings.Cut(command, " "); command[0] != '`' {
			return word + " " + root + "/" + strings.TrimPrefix(strings.TrimPrefix(name, root), "/")
		}
		program, rest, _ := strings.Cut(strings.Trim(command, "`"), " ")
		switch {
		case strings.Contains(command, quoted):
			return command
		case program == "systemctl":
			return "`systemctl --root=" + quoted + " " + strings.ReplaceAll(rest, "--now ", "") + "`"
		case program == "nodegate" && rest == "install":
			return "`nodegate install --root " + quoted + "`"
		case program == "useradd" || program == "groupadd":
			return "`" + program + " --root " + quoted + " " + rest + "`"
		case slices.Contains([]string{"chmod", "mkdir", "rm", "sed", "touch"}, program):
			return "`" + program + " " + regexp.MustCompile(`(^| )('?)/`).ReplaceAllString(rest, "${1}${2}"+root+"/") + "`"
		}
		return command
	})
}

// Causes collects the causes of the faults in one inspection.
type Causes struct {
	first   string
	without bool
}

// Add adds the cause of a fault, which may be "".
func (c *Causes) Add(cause string) {
	c.first, c.without = cmp.Or(c.first, cause), c.without || cause == ""
}

// One returns the first cause, or "" if one fault has no cause and would remain after all causes are fixed.
func (c *Causes) One() string {
	if c.without {
		return ""
	}
	return c.first
}

// SysctlCause returns the name of the policy's own requirement on a parameter, or "". If that
// requirement fails, the problem is only its consequence.
func SysctlCause(p *policy.Policy, key string) string {
	for _, s := range p.Sysctls {
		if string(s.Key) == key {
			return "sysctl." + s.Key.String()
		}
	}
	return ""
}
