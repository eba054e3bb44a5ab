package checks

import (
	"cmp"
	"context"
	"slices"

	"nodegate/internal/host"
	"nodegate/policy"
)

// Problem is a failure that nodegate knows: how it shows on a node, and how to
// detect it. Its check only looks. A policy asks for it by name, in a check
// block. The texts are printed by `nodegate explain` and in docs/checks.md.
type Problem struct {
	Name       string          // lower case, dotted, stable: "vxlan.checksum"
	Stages     []Stage         // when it can be detected
	NotAll     bool            // stage all leaves it out: it fails on every machine that runs
	Severity   policy.Severity // the default where the policy names none
	Detects    string          // what is wrong, in one sentence
	Symptom    string          // what a user sees
	How        string          // what is read to detect it
	Remedy     string          // what to do; State.Remedy is more exact
	TradeOff   string          // what the remedy costs, "" for nothing
	Ref        string          // the source of all this
	Later      bool            // judged when kubelet starts: apply, which runs early at boot, leaves it out
	Concurrent bool            // it waits for another program or in a namespace: it runs beside the other checks
	Moves      bool            // other programs may just be writing what it judges: what does not pass is looked at again
	Inspect    func(context.Context, *host.Host, *policy.Policy) (State, error)
}

// Asked returns the problems that a policy asks for and that can be detected at
// a stage. At stage boot, which is the gate's, a problem of severity warn cannot
// hold the node: it waits for stage run, so that no start of a node pays for it.
func Asked(problems []Problem, p *policy.Policy, stage Stage) []Check {
	var list []Check
	asks := p.Applying()
	for _, problem := range problems {
		i := asking(p.Problems, problem.Name)
		if i < 0 || !slices.Contains(problem.Stages, stage) && (stage != All || problem.NotAll) {
			continue
		}
		meta := p.Problems[i].Metadata
		meta.Severity = cmp.Or(meta.Severity, problem.Severity)
		meta.Reason = cmp.Or(meta.Reason, problem.Detects)
		meta.Ref = cmp.Or(meta.Ref, problem.Ref)
		if stage == Boot && meta.Severity == policy.Warn {
			continue
		}
		list = append(list, asked{problem, meta, asks})
	}
	return list
}

// asking returns the index of the block that asks for a problem, -1 where none does: one that applies, else one of which that is not
// known, else one that is off.
func asking(blocks []policy.Problem, name string) int {
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

// Early returns the checks that can be judged before what kubelet needs is there: its runtime, and what kubeadm or
// cloud-init writes later in the boot. Nothing is proved by packets then.
func Early(list []Check) []Check {
	return slices.DeleteFunc(slices.Clone(list), func(c Check) bool {
		if _, is := c.(Sender); is {
			return true
		}
		a, is := c.(asked)
		return is && a.Later
	})
}

// Sender is a check that sends packets through namespaces of its own, which nodegate-apply.service may not make: it proves kubelet's start,
// not the machine's.
type Sender interface{ SendsPackets() }

func isBeside(c Check) bool {
	a, is := c.(asked)
	return is && a.Concurrent
}

// asked is a problem that a policy asks for.
type asked struct {
	Problem
	metadata policy.Metadata
	policy   *policy.Policy
}

func (a asked) Name() string              { return a.Problem.Name }
func (a asked) Metadata() policy.Metadata { return a.metadata }

func (a asked) Inspect(ctx context.Context, h *host.Host) (State, error) {
	s, err := a.Problem.Inspect(ctx, h, a.policy)
	if s.Remedy == "" && !s.Pass && s.Skip == "" {
		s.Remedy = a.Remedy
	}
	return s, err
}

// Causes are those of all that is wrong in one inspection.
type Causes struct {
	first   string
	without bool
}

// Add adds the cause of something wrong, "" for none.
func (c *Causes) Add(cause string) {
	c.first, c.without = cmp.Or(c.first, cause), c.without || cause == ""
}

// One returns the first cause; "" where something has none, and would still be wrong when all causes are mended.
func (c *Causes) One() string {
	if c.without {
		return ""
	}
	return c.first
}

// SysctlCause names the policy's own requirement on a parameter, or "". Where
// that requirement fails, the problem is only its consequence.
func SysctlCause(p *policy.Policy, key string) string {
	for _, s := range p.Sysctls {
		if string(s.Key) == key {
			return "sysctl." + s.Key.String()
		}
	}
	return ""
}
