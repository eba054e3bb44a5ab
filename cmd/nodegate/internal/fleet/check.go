package fleet

import (
	"cmp"
	"slices"
	"strings"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// mergeChecks merges the results of all reports by check. It keeps the order of the
// reports, in which a check follows the checks that it depends on.
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
			c.addResult(n, r.Stage, res)
		}
	}
	checks := make([]Check, len(all))
	for i, c := range all {
		checks[i] = c.finish(reports)
	}
	return checks
}

// factPrefix begins the names of the node's properties, which are compared although no policy requires them.
const factPrefix = "node."

// facts returns the properties of a report's node, as checks that pass.
func facts(r report.Read) []report.Result {
	var all []report.Result
	for _, f := range []struct{ name, got string }{
		{"kernel", r.Node.Kernel}, {"os", r.Node.OS}, {"version", r.Version},
		{"policy", strings.TrimSpace(strings.Join(r.Policy.Files, " ") + " " + r.Policy.Digest)},
	} {
		if f.got != "" {
			all = append(all, report.Result{Name: factPrefix + f.name, Verdict: verdict.Pass, Severity: policy.Warn, Got: f.got})
		}
	}
	return all
}

type stateKey struct {
	verdict    verdict.Verdict
	got        string
	notChecked bool
}

// collected is a check during the merge of the reports.
type collected struct {
	Check
	at     map[stateKey]int
	stages map[string]bool // the stages at which a node was checked
	wrong  int             // nodes on which the check does not pass
	caused int             // nodes among those on which another check is the cause
	cause  string
}

func (c *collected) addResult(node int, stage string, r report.Result) {
	c.stages[stage] = true
	if c.Severity == "" || r.Severity == "block" {
		c.Severity = string(r.Severity)
	}
	if !r.Verdict.Fine() {
		c.wrong++
		c.Want, c.Remedy = cmp.Or(c.Want, r.Want), cmp.Or(c.Remedy, report.OneLine(r.Remedy))
		if r.Because != "" {
			c.caused++
			c.cause = r.Because
		}
	}
	c.addState(node, stateKey{verdict: r.Verdict, got: r.Observed()})
}

func (c *collected) addState(node int, key stateKey) {
	i, is := c.at[key]
	if !is {
		i = len(c.States)
		c.at[key] = i
		c.States = append(c.States, Answer{Verdict: key.verdict, Got: key.got, NotChecked: key.notChecked})
	}
	c.States[i].Nodes = append(c.States[i].Nodes, node)
	c.of[node] = i
}

// finish returns the merged check. Nodes that were not checked form a state of their
// own, with two exceptions: a node at another stage does not count as different, and
// for a node with only a console report it is not known what passes.
func (c *collected) finish(reports []report.Read) Check {
	compared := 0
	for n, r := range reports {
		if c.of[n] >= 0 {
			compared++
		} else if c.stages[r.Stage] && !r.Partial {
			compared++
			c.addState(n, stateKey{notChecked: true})
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
	c.Kind = c.findKind(compared)
	if c.Kind == Caused {
		c.Because = c.cause
	}
	return c.Check
}

func (c *collected) findKind(compared int) Kind {
	most := c.States[0]
	switch {
	case len(c.States) == 1 && c.wrong == 0:
		return Alike
	case c.wrong > 0 && c.caused == c.wrong && !c.fineDiffer():
		return Caused
	case strings.HasPrefix(c.Name, factPrefix):
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

// fineDiffer reports whether there are differences among the nodes on which the check passes or was not run.
func (c *collected) fineDiffer() bool {
	return count(c.States, Answer.fine) > 1
}

// Odd returns the number of nodes that differ from the majority.
func (c Check) Odd() int {
	n := 0
	for _, s := range c.States[1:] {
		n += len(s.Nodes)
	}
	return n
}

// Of returns the state of a node, and false if the check does not run at the node's stage.
func (c Check) Of(node int) (Answer, bool) {
	if c.of[node] < 0 {
		return Answer{}, false
	}
	return c.States[c.of[node]], true
}

// IsOdd reports whether a node differs from the majority, in a check that has a majority.
func (c Check) IsOdd(node int) bool {
	return c.of[node] > 0 && (c.Kind == Verdicted || c.Kind == Valued || c.Kind == Caused)
}
