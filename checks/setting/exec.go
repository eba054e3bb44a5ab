package setting

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// Programs returns the programs of a policy that run at a stage. At stage boot, which is the gate's, those that only warn are omitted, as
// problems are.
func Programs(p *policy.Policy, stage checks.Stage) []checks.Check {
	var list []checks.Check
	for _, e := range p.EachExec() {
		if (stage == checks.All || slices.Contains(e.Stages, string(stage))) && (stage != checks.Boot || e.Severity != policy.Warn) {
			list = append(list, program{e})
		}
	}
	return list
}

// InstalledPrograms returns the programs of a policy as requirements of a file tree: on the node, a missing program of check "exec" is
// unknown, which holds kubelet.
func InstalledPrograms(p *policy.Policy) []checks.Check {
	var list []checks.Check
	for _, e := range p.EachExec() {
		list = append(list, installedProgram{e})
	}
	if len(p.Gate.OnHeld) > 0 {
		list = append(list, installedProgram{policy.Exec{
			Metadata: policy.Metadata{Severity: policy.Block, Range: p.Gate.Range}, Name: "on_held", Command: p.Gate.OnHeld,
		}})
	}
	return list
}

// installedProgram requires a program that nodegate would run.
type installedProgram struct{ policy.Exec }

func (p installedProgram) Name() string              { return "image." + p.Exec.Name }
func (p installedProgram) Metadata() policy.Metadata { return p.Exec.Metadata }

func (p installedProgram) Inspect(_ context.Context, h *host.Host) (checks.State, error) {
	s := checks.Passing(p.Program() + ", which only root can write")
	wrong, remedy, err := h.UnfitProgram(p.Program())
	if err != nil {
		return checks.State{Want: s.Want}, err
	}
	if wrong != "" {
		s.Differs(wrong, remedy)
	}
	return s, nil
}

// program requires a program of the operator to exit with status 0.
type program struct{ policy.Exec }

func (p program) Name() string              { return p.Exec.Name }
func (p program) Metadata() policy.Metadata { return p.Exec.Metadata }

// RunsProgram implements checks.Runner.
func (p program) RunsProgram() {}

// The exit status of a program.
const (
	passes = 0
	fails  = 1
)

func (p program) Inspect(ctx context.Context, h *host.Host) (checks.State, error) {
	s := checks.State{Want: "exit status 0"}
	if h.Exec == nil || !h.Live() {
		return s, host.ErrNoPrograms
	}
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	ran, err := h.Exec(ctx, p.Command)
	if err != nil {
		return s, err
	}
	if ran.Line != "" {
		s.Evidence = []checks.Evidence{checks.Seen(p.Command[0], ran.Line)}
	}
	switch ran.Status {
	case passes:
		s.Pass, s.Got = true, s.Want
	case fails:
		s.Got, s.Remedy = cmp.Or(ran.Line, "exit status 1"), "correct what "+p.Command[0]+" reports"
	default:
		return s, fmt.Errorf("%s exited with status %d, which means unknown: %s", p.Command[0], ran.Status, cmp.Or(ran.Line, "no output"))
	}
	return s, nil
}
