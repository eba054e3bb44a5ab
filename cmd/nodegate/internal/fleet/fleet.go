package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/verdict"
)

// Fleet is many reports in one table of checks and nodes, the worst first.
type Fleet struct {
	Nodes  []Member
	Checks []Check
	Groups []Group // every node is in one
	domain string  // the common end of all names
}

// Member is one report.
type Member struct {
	Name    string          `json:"name"`
	Stage   string          `json:"stage"`
	Verdict verdict.Verdict `json:"verdict"`
	Time    string          `json:"time,omitempty"`
	File    string          `json:"file"`
	Enforce string          `json:"enforce,omitempty"` // "warn" where the gate holds nothing
}

// Check is one requirement over all nodes.
type Check struct {
	Name     string
	Severity string
	Kind     Kind
	States   []Answer // the most common first; a node is in one
	Reason   string   // why it is asked
	Ref      string   // where that is documented
	Remedy   string   // of the first node on which it does not pass
	Because  string   // the check that explains every failure of this one
	of       []int    // node -> state
}

// Answer is what a check found on some nodes.
type Answer struct {
	Verdict  verdict.Verdict
	NotAsked bool // their policy does not have the check
	Got      string
	Nodes    []int // indexes of Fleet.Nodes
}

// Group is nodes on which every check found the same. Of a check whose value
// differs on most nodes, only the verdict counts.
type Group struct {
	Nodes   []int // indexes of Fleet.Nodes
	Differs []int // indexes of Fleet.Checks in which these nodes are not as most
}

// Kind is how alike the nodes are in a check. The order is that of the table:
// outliers come first.
type Kind int

// The kinds.
const (
	Verdicted Kind = iota // a few nodes are not as most, and some do not pass
	Valued                // a few nodes are not as most, and all pass
	Wrong                 // no value that most have, and some do not pass; or none passes
	Caused                // another check explains what is wrong
	Varies                // most nodes have a value of their own, and all pass
	Alike                 // no difference, and all pass
)

func (k Kind) String() string {
	return [...]string{"verdict", "value", "wrong", "follows", "varies", "alike"}[k]
}

// Merge makes one table of reports. A second report of a node is left out, with
// an error that names both files.
func Merge(reports []report.Read) (Fleet, []error) {
	var f Fleet
	var errs []error
	files := map[string]string{}
	var kept []report.Read
	for _, r := range reports {
		r.Node.Name = cmp.Or(r.Node.Name, r.File) // an image has no name
		if first, is := files[r.Node.Name]; is {
			errs = append(errs, fmt.Errorf("%s: node %.200q has a report already, in %s; keep the newer", r.File, r.Node.Name, first))
			continue
		}
		files[r.Node.Name] = r.File
		kept = append(kept, r)
	}
	slices.SortStableFunc(kept, func(a, b report.Read) int { return natural(a.Node.Name, b.Node.Name) })
	kept, tooMany := bounded(kept)
	errs = append(errs, tooMany...)
	for _, r := range kept {
		f.Nodes = append(f.Nodes, Member{r.Node.Name, r.Stage, r.Verdict, r.Time, r.File, r.Policy.Enforce})
	}
	f.domain = domain(f.Nodes)
	f.Checks = mergeChecks(kept)
	slices.SortStableFunc(f.Checks, byInterest)
	f.Groups = group(f.Checks, len(kept))
	return f, errs
}

// What a table may hold. A fleet asks a few hundred different checks, and most nodes are asked the same.
const (
	maxChecks   = 10_000
	freeCells   = 1 << 20 // nodes times checks
	cellsForOne = 16      // more for each result
)

// bounded leaves out the reports with which the table would become larger than what was read by far: those with
// thousands of checks that no other node has.
func bounded(reports []report.Read) (kept []report.Read, errs []error) {
	checks := map[string]bool{}
	results := 0
	for _, r := range reports {
		fresh := map[string]bool{}
		for _, res := range r.Results {
			if !checks[res.Name] {
				fresh[res.Name] = true
			}
		}
		n := len(checks) + len(fresh)
		if n > maxChecks || n*(len(kept)+1) > freeCells+cellsForOne*(results+len(r.Results)) {
			errs = append(errs, fmt.Errorf("%s: left out: with it there would be %d different checks on %d nodes, too many for one table",
				r.File, n, len(kept)+1))
			continue
		}
		maps.Copy(checks, fresh)
		results += len(r.Results)
		kept = append(kept, r)
	}
	return kept, errs
}

// Verdict returns the worst verdict of the nodes.
func (f Fleet) Verdict() verdict.Verdict {
	for _, v := range []verdict.Verdict{verdict.Fail, verdict.Unknown} {
		if f.Count(v) > 0 {
			return v
		}
	}
	return verdict.Pass
}

// Count returns how many nodes have the verdict.
func (f Fleet) Count(verdict verdict.Verdict) int {
	n := 0
	for _, node := range f.Nodes {
		if node.Verdict == verdict {
			n++
		}
	}
	return n
}

// Outdated returns the nodes whose report of a running node is more than a day older than the newest of all: what watch left before it
// ended stays where it was, and says nothing of the node as it is.
func (f Fleet) Outdated() []int {
	var newest time.Time
	times := make([]time.Time, len(f.Nodes))
	for i, n := range f.Nodes {
		at, err := time.Parse(time.RFC3339, n.Time)
		if err != nil {
			continue // an older nodegate's
		}
		times[i] = at
		if at.After(newest) {
			newest = at
		}
	}
	var all []int
	for i, n := range f.Nodes {
		if n.Stage == "run" && !times[i].IsZero() && newest.Sub(times[i]) > 24*time.Hour {
			all = append(all, i)
		}
	}
	return all
}

// WouldBeHeld returns the nodes that the gate would hold, and does not, because enforce is warn there. Only the gate's own reports say
// so: at stage run more is asked than the gate asks.
func (f Fleet) WouldBeHeld() []int {
	var all []int
	for i, n := range f.Nodes {
		if n.Enforce == "warn" && n.Stage == "boot" && n.Verdict != verdict.Pass {
			all = append(all, i)
		}
	}
	return all
}

// Stages returns the stages of the reports, each once.
func (f Fleet) Stages() []string {
	var all []string
	for _, n := range f.Nodes {
		all = append(all, n.Stage)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// OfKind returns how many checks are of the kind.
func (f Fleet) OfKind(k Kind) int {
	n := 0
	for _, c := range f.Checks {
		if c.Kind == k {
			n++
		}
	}
	return n
}
