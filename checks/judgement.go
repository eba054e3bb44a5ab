package checks

import (
	"context"
	"slices"

	"nodegate/internal/host"
	"nodegate/policy"
)

// Problem is a check that only looks: a failure that nodegate knows, and how
// it shows on a node. A policy asks for it by name, in a check block. The texts
// are what `nodegate explain` and docs/checks.md say.
type Problem struct {
	Name     string          // lower case, dotted, stable: "vxlan.checksum"
	Stages   []Stage         // when it can be judged
	Severity policy.Severity // where the policy does not say
	Detects  string          // what is wrong, in one sentence
	Symptom  string          // what a user sees
	How      string          // what is read to detect it
	Remedy   string          // what to do; State.Remedy says it for the case found
	TradeOff string          // what the remedy costs, "" where it costs nothing
	Ref      string          // where all this is known from
	Inspect  func(context.Context, *host.Host, *policy.Policy) (State, error)
}

// Problems is every judgement there is, in the order in which they run.
func Problems() []Problem {
	return slices.Concat(imageProblems(), settingProblems(), linkProblems(), trafficProblems())
}

// ProblemNames is what a check block may name.
func ProblemNames() []string {
	var names []string
	for _, j := range Problems() {
		names = append(names, j.Name)
	}
	return names
}

// judged is a judgement that a policy asks for.
type judged struct {
	Problem
	about  policy.Metadata
	policy *policy.Policy
}

func (j judged) Name() string              { return j.Problem.Name }
func (j judged) Metadata() policy.Metadata { return j.about }

func (j judged) Inspect(ctx context.Context, h *host.Host) (State, error) {
	s, err := j.Problem.Inspect(ctx, h, j.policy)
	if s.Remedy == "" && !s.Pass && s.Skip == "" {
		s.Remedy = j.Remedy
	}
	return s, err
}

// problemsFor is the judgements that the policy asks for and that can be made
// at a stage. Boot is the gate's: what only warns cannot hold it, and is left
// to stage run, so that no start of a node pays for it.
func problemsFor(p *policy.Policy, stage Stage) []Check {
	var list []Check
	for _, j := range Problems() {
		i := slices.IndexFunc(p.Problems, func(asked policy.Problem) bool { return asked.Name == j.Name })
		if i < 0 || stage != All && !slices.Contains(j.Stages, stage) {
			continue
		}
		about := p.Problems[i].Metadata
		if about.Severity == "" {
			about.Severity = j.Severity
		}
		if about.Reason == "" {
			about.Reason = j.Detects
		}
		if about.Ref == "" {
			about.Ref = j.Ref
		}
		if stage == Boot && about.Severity == policy.Warn {
			continue
		}
		list = append(list, judged{j, about, p})
	}
	return list
}
