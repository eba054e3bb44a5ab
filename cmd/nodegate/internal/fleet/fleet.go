// Package fleet merges the reports of many nodes into one table and finds the
// nodes that differ from the rest. It does not trust any text in a report, and
// does not access any machine.
package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/sorted"
	"nodegate/internal/verdict"
)

// Fleet is a table of checks and nodes, made from many reports. The worst come first.
type Fleet struct {
	Nodes  []Member
	Checks []Check
	Groups []Group // every node is in exactly one group
	domain string  // the common suffix of all names
	fixes  string  // the number of checks and nodes that apply would fix, or ""
}

// Member is one report.
type Member struct {
	Name    string          `json:"name"`              // the node's name
	Stage   string          `json:"stage"`             // of the report
	Verdict verdict.Verdict `json:"verdict"`           // of the node
	Time    string          `json:"time,omitempty"`    // when its checks began
	File    string          `json:"file"`              // that the report came from
	Enforce string          `json:"enforce,omitempty"` // "warn" if the gate holds nothing
}

// Check is one requirement on all nodes.
type Check struct {
	Name     string
	Severity string
	Kind     Kind
	States   []Answer // the most common first; every node is in at most one
	Want     string   // the required state, and
	Remedy   string   // the remedy, from the first node on which the check does not pass
	Because  string   // the check that causes every failure of this one
	of       []int    // index of a node's state in States, -1 for none
}

// Answer is a result of a check, with the nodes that have it.
type Answer struct {
	Verdict    verdict.Verdict
	NotChecked bool // the nodes' policy does not have the check
	Got        string
	Nodes      []int // indexes of Fleet.Nodes
}

// Group is a set of nodes with the same result in every check. For a check whose
// value differs on most nodes, only the verdict counts.
type Group struct {
	Nodes   []int // indexes of Fleet.Nodes
	Differs []int // indexes of Fleet.Checks in which these nodes differ from the majority
}

// Kind classifies the differences between the nodes in a check. The table has the
// same order: outliers come first.
type Kind int

// The kinds.
const (
	Verdicted Kind = iota // a few nodes differ from the majority, and some nodes do not pass
	Valued                // a few nodes differ from the majority, and all nodes pass
	Wrong                 // there is no majority and some nodes do not pass, or no node passes
	Caused                // every failure is a symptom of another check
	Varies                // there is no majority, and all nodes pass
	Alike                 // all nodes have the same value, and pass
)

func (k Kind) String() string {
	return [...]string{"verdict", "value", "wrong", "follows", "varies", "alike"}[k]
}

// Merge merges reports into one table. It leaves out a second report of a node, and
// returns an error that names both files.
func Merge(reports []report.Read) (Fleet, []error) {
	var f Fleet
	var errs []error
	files := map[string]string{}
	var kept []report.Read
	for _, r := range reports {
		r.Node.Name = cmp.Or(r.Node.Name, r.File) // an image has no name
		if first, is := files[r.Node.Name]; is {
			errs = append(errs, fmt.Errorf("%s: node %.200q already has a report in %s; keep only the newer one", r.File, r.Node.Name, first))
			continue
		}
		files[r.Node.Name] = r.File
		kept = append(kept, r)
	}
	sorted.By(kept, func(a, b report.Read) int { return compareNatural(a.Node.Name, b.Node.Name) })
	kept, tooMany := limitSize(kept)
	errs = append(errs, tooMany...)
	for _, r := range kept {
		f.Nodes = append(f.Nodes, Member{r.Node.Name, r.Stage, r.Verdict, r.Time, r.File, r.Policy.Enforce})
	}
	f.domain, f.fixes = domain(f.Nodes), fixes(kept)
	f.Checks = mergeChecks(kept)
	sorted.By(f.Checks, byInterest)
	f.Groups = groupNodes(f.Checks, len(kept))
	return f, errs
}

// fixes returns "`nodegate apply` fixes 2 checks on 3 nodes". It does not count symptoms.
func fixes(reports []report.Read) string {
	checks, nodes := map[string]bool{}, map[int]bool{}
	for n, r := range reports {
		for _, res := range r.Results {
			if res.Fixable && res.Because == "" {
				checks[res.Name], nodes[n] = true, true
			}
		}
	}
	if len(nodes) == 0 {
		return ""
	}
	on := ""
	if len(reports) > 1 {
		on = " on " + report.Count(len(nodes), "node")
	}
	return "; `nodegate apply` fixes " + report.Count(len(checks), "check") + on
}

// The limits of a table. A fleet has a few hundred different checks, and most nodes have the same ones.
const (
	maxChecks   = 10_000
	freeCells   = 1 << 20 // nodes times checks
	cellsForOne = 16      // more for each result
)

// limitSize leaves out reports that would make the table far larger than the input: reports with thousands of checks
// that no other node has.
func limitSize(reports []report.Read) (kept []report.Read, errs []error) {
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
			errs = append(errs, fmt.Errorf("%s: report left out: with it the table would have %d different checks on %d nodes, which is too large",
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

// Count returns the number of nodes with the verdict.
func (f Fleet) Count(verdict verdict.Verdict) int {
	return count(f.Nodes, func(n Member) bool { return n.Verdict == verdict })
}

func count[T any](all []T, is func(T) bool) (n int) {
	for _, one := range all {
		if is(one) {
			n++
		}
	}
	return n
}

// Outdated returns the nodes whose report of stage run is more than a day older than the newest report: after watch has ended, its last
// report remains, but no longer describes the node.
func (f Fleet) Outdated() []int {
	var newest time.Time
	times := make([]time.Time, len(f.Nodes))
	for i, n := range f.Nodes {
		at, err := time.Parse(time.RFC3339, n.Time)
		if err != nil {
			continue // a report of an older nodegate
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

// WouldBeHeld returns the nodes that the gate would hold if enforce were not warn. Only reports of stage boot show this: stage run has
// more requirements than the gate.
func (f Fleet) WouldBeHeld() []int {
	var all []int
	for i, n := range f.Nodes {
		if n.Enforce == "warn" && n.Stage == "boot" && n.Verdict != verdict.Pass {
			all = append(all, i)
		}
	}
	return all
}

// Stages returns the stages of the reports, without duplicates.
func (f Fleet) Stages() []string {
	var all []string
	for _, n := range f.Nodes {
		all = append(all, n.Stage)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
