package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Audit is the result of one `nodegate audit` on a node.
type Audit struct {
	Verdict string
	Results []struct {
		Name, Verdict, Remedy string
		Evidence              []struct{ Source, Text string }
	}
	Took time.Duration
}

// auditTime bounds one audit.
const auditTime = 3 * time.Minute

// Audit runs nodegate audit on the node as kube-proxy's user, with additional arguments.
func (n *ProxyNode) Audit(ctx context.Context, nodegate string, args ...string) (Audit, error) {
	ctx, cancel := context.WithTimeout(ctx, auditTime)
	defer cancel()
	command := append([]string{
		"audit", "--kubeconfig", n.plane.ProxyKubeconfig, "--node", n.Name, "--format", "json",
	}, args...)
	began := time.Now()
	out, err := n.Output(ctx, nodegate, command...)
	a := Audit{Took: time.Since(began)}
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return a, err
	}
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		return a, fmt.Errorf("nodegate audit: %w\n%s", err, out)
	}
	return a, nil
}

// Findings returns the names of all findings, including unknown ones.
func (a Audit) Findings() []string { return a.namesWith("fail", "warn", "unknown") }

// Said returns the text of all findings, including unknown ones.
func (a Audit) Said() string {
	text := "nodegate: " + a.Verdict
	for _, r := range a.Results {
		if !slices.Contains([]string{"fail", "warn", "unknown"}, r.Verdict) {
			continue
		}
		text += "\n" + r.Verdict + ": " + r.Name
		for _, e := range r.Evidence {
			text += "\n    " + e.Source + " " + e.Text
		}
	}
	return text
}

// Accusations returns the names of the findings that fail or warn.
func (a Audit) Accusations() []string { return a.namesWith("fail", "warn") }

func (a Audit) namesWith(verdicts ...string) []string {
	var names []string
	for _, r := range a.Results {
		if slices.Contains(verdicts, r.Verdict) {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Tally counts the results of many audits.
type Tally struct {
	Verdicts map[string]int
	Findings map[string]int    // number of audits with this finding
	Accused  map[string]string // the first audit with this finding; only those that fail or warn
	Longest  time.Duration
}

// Add counts one audit.
func (t *Tally) Add(a Audit) {
	if t.Verdicts == nil {
		t.Verdicts, t.Findings, t.Accused = map[string]int{}, map[string]int{}, map[string]string{}
	}
	t.Verdicts[a.Verdict]++
	t.Longest = max(t.Longest, a.Took)
	for _, name := range a.Findings() {
		t.Findings[name]++
	}
	for _, name := range a.Accusations() {
		if t.Accused[name] == "" {
			t.Accused[name] = a.Said()
		}
	}
}

// Audits returns the number of counted audits.
func (t *Tally) Audits() int {
	n := 0
	for _, count := range t.Verdicts {
		n += count
	}
	return n
}

// String returns the tally on one line.
func (t *Tally) String() string {
	list := func(counts map[string]int) string {
		var words []string
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			words = append(words, fmt.Sprintf("%s %d", name, counts[name]))
		}
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("%s; findings: %s; the longest took %.1f s", list(t.Verdicts), list(t.Findings), t.Longest.Seconds())
}
