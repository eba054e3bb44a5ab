package checks

import (
	"context"
	"slices"

	"nodegate/internal/host"
	"nodegate/policy"
)

// Judgement is a check that only looks: a failure that nodegate knows, and how
// it shows on a node. A policy asks for it by name, in a check block. The texts
// are what `nodegate explain` and docs/checks.md say.
type Judgement struct {
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

// Judgements is every judgement there is, in the order in which they run.
func Judgements() []Judgement {
	return slices.Concat(imageJudgements(), settingJudgements(), linkJudgements(), trafficJudgements())
}

// JudgementNames is what a check block may name.
func JudgementNames() []string {
	var names []string
	for _, j := range Judgements() {
		names = append(names, j.Name)
	}
	return names
}

// judged is a judgement that a policy asks for.
type judged struct {
	Judgement
	about  policy.About
	policy *policy.Policy
}

func (j judged) Name() string        { return j.Judgement.Name }
func (j judged) About() policy.About { return j.about }

func (j judged) Inspect(ctx context.Context, h *host.Host) (State, error) {
	s, err := j.Judgement.Inspect(ctx, h, j.policy)
	if s.Remedy == "" && !s.Holds && s.Skip == "" {
		s.Remedy = j.Remedy
	}
	return s, err
}

// judgementsFor is the judgements that the policy asks for and that can be made
// at a stage. Boot is the gate's: what only warns cannot hold it, and is left
// to stage run, so that no start of a node pays for it.
func judgementsFor(p *policy.Policy, stage Stage) []Check {
	var list []Check
	for _, j := range Judgements() {
		i := slices.IndexFunc(p.Judgements, func(asked policy.Judgement) bool { return asked.Name == j.Name })
		if i < 0 || stage != All && !slices.Contains(j.Stages, stage) {
			continue
		}
		about := p.Judgements[i].About
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
