package fleet

import (
	"cmp"
	"slices"
	"strings"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// mergeChecks keeps the order of the reports, in which checks depend on each
// other.
func mergeChecks(reports []report.Read) []Check {
	var all []*collected
	byName := map[string]*collected{}
	for n, r := range reports {
		for _, res := range slices.Concat(facts(r), r.Results) {
			c := byName[res.Name]
			if c == nil {
				c = &collected{Check: Check{Name: res.Name, of: make([]int, len(reports))}, at: map[stateKey]int{}, stages: map[string]bool{}}
				for i := range c.of {
					c.of[i] = -1
				}
				byName[res.Name] = c
				all = append(all, c)
			}
			c.add(n, r.Stage, res)
		}
	}
	checks := make([]Check, len(all))
	for i, c := range all {
		checks[i] = c.finish(reports)
	}
	return checks
}

// isFact begins the names of what is compared though no policy asks for it.
const isFact = "node."

// facts returns what a report says of its node, as checks that pass.
func facts(r report.Read) []report.Result {
	var all []report.Result
	for _, f := range []struct{ name, got string }{
		{"kernel", r.Node.Kernel}, {"os", r.Node.OS}, {"policy", strings.Join(r.Policy.Files, " ")},
	} {
		if f.got != "" {
			all = append(all, report.Result{Name: isFact + f.name, Verdict: verdict.Pass, Severity: policy.Warn, Got: f.got,
				Reason: "Nodes that differ in this differ in more."})
		}
	}
	return all
}

type stateKey struct {
	verdict  verdict.Verdict
	got      string
	notAsked bool
}

// collected is a check while reports come in.
type collected struct {
	Check
	at     map[stateKey]int
	stages map[string]bool // at which a node was asked
	wrong  int             // nodes on which it does not pass
	caused int             // of these, those where another check explains it
	cause  string
}

func (c *collected) add(node int, stage string, r report.Result) {
	c.stages[stage] = true
	if c.Severity == "" || r.Severity == "block" {
		c.Severity = string(r.Severity)
	}
	c.Reason, c.Ref = cmp.Or(c.Reason, r.Reason), cmp.Or(c.Ref, r.Ref)
	if !r.Verdict.Fine() {
		c.wrong++
		if c.Remedy == "" {
			c.Remedy = r.Remedy
		}
		if r.Because != "" {
			c.caused++
			c.cause = r.Because
		}
	}
	c.put(node, stateKey{verdict: r.Verdict, got: r.Observed()})
}

func (c *collected) put(node int, key stateKey) {
	i, is := c.at[key]
	if !is {
		i = len(c.States)
		c.at[key] = i
		c.States = append(c.States, Answer{Verdict: key.verdict, Got: key.got, NotAsked: key.notAsked})
	}
	c.States[i].Nodes = append(c.States[i].Nodes, node)
	c.of[node] = i
}

// finish is called with all reports: nodes that were not asked are a state of
// their own. A node at another stage is not asked, and does not differ; of one that
// left its last words only, it is not known.
func (c *collected) finish(reports []report.Read) Check {
	compared := 0
	for n, r := range reports {
		if c.of[n] >= 0 {
			compared++
		} else if c.stages[r.Stage] && !r.Partial {
			compared++
			c.put(n, stateKey{notAsked: true})
		}
	}
	order := make([]int, len(c.States))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(c.States[b].Nodes), len(c.States[a].Nodes)) })
	states := make([]Answer, len(order))
	renamed := make([]int, len(order))
	for to, from := range order {
		states[to], renamed[from] = c.States[from], to
	}
	for n, s := range c.of {
		if s >= 0 {
			c.of[n] = renamed[s]
		}
	}
	c.States = states
	c.Kind = c.kind(compared)
	if c.Kind == Caused {
		c.Because = c.cause
	}
	return c.Check
}

func (c *collected) kind(compared int) Kind {
	most := c.States[0]
	switch {
	case len(c.States) == 1 && c.wrong == 0:
		return Alike
	case c.wrong > 0 && c.caused == c.wrong && !c.fineDiffer():
		return Caused
	case strings.HasPrefix(c.Name, isFact):
		return Valued
	case len(c.States) == 1:
		return Wrong
	case 2*len(most.Nodes) <= compared && c.wrong > 0:
		return Wrong
	case 2*len(most.Nodes) <= compared:
		return Varies
	}
	if c.wrong > 0 {
		return Verdicted
	}
	return Valued
}

// fineDiffer reports whether nodes on which it passes, or that were not asked, differ.
func (c *collected) fineDiffer() bool {
	fine := 0
	for _, s := range c.States {
		if s.fine() {
			fine++
		}
	}
	return fine > 1
}

// Odd returns how many nodes are not as most.
func (c Check) Odd() int {
	n := 0
	for _, s := range c.States[1:] {
		n += len(s.Nodes)
	}
	return n
}

// Of returns the state of a node; false if its stage does not ask.
func (c Check) Of(node int) (Answer, bool) {
	if c.of[node] < 0 {
		return Answer{}, false
	}
	return c.States[c.of[node]], true
}

// IsOdd reports whether a node differs from most in a check in which most are alike.
func (c Check) IsOdd(node int) bool {
	return c.of[node] > 0 && (c.Kind == Verdicted || c.Kind == Valued || c.Kind == Caused)
}
