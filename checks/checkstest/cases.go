package checkstest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
)

// Case is a recorded node or a file tree, and the result of one problem there, as Text prints it.
type Case struct {
	What    string
	Problem string
	Stage   checks.Stage // run if empty
	Policy  string       // in addition to the check block
	Node    *hosttest.Machine
	Tree    map[string]string // instead of Node; "-> TARGET" is a symbolic link
	Host    func(*host.Host)  // changes the node's answers
	Want    string
}

// Run runs each case's problem and compares its whole result. It fails if the problem changes the node.
func Run(t *testing.T, cases []Case) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Problem+"/"+c.What, func(t *testing.T) { c.runCase(t) })
	}
}

// RunOne runs one problem over the cases.
func RunOne(t *testing.T, problem string, stage checks.Stage, cases []Case) {
	t.Helper()
	for _, c := range cases {
		c.Problem, c.Stage = problem, stage
		t.Run(c.What, func(t *testing.T) { c.runCase(t) })
	}
}

func (c Case) runCase(t *testing.T) {
	t.Helper()
	if c.Stage == "" {
		c.Stage = checks.Run
	}
	if c.Tree != nil {
		h := Tree(t, c.Tree)
		got := Text(On(t.Context(), t, h, c.Stage, c.Problem, c.Policy))
		Equal(t, c.What, c.Want, strings.ReplaceAll(got, h.Root, "ROOT"))
		c.replay(t, h, got)
		return
	}
	if c.Node.Files == nil {
		c.Node.Files = map[string]string{}
	}
	before := c.Node.String()
	h := c.Node.Host()
	if c.Host != nil {
		c.Host(h)
	}
	recorded := &recordingRules{Rules: h.Rules}
	h.Rules = recorded
	Equal(t, c.What, c.Want, Text(On(t.Context(), t, h, c.Stage, c.Problem, c.Policy)))
	if recorded.read && !canMove(c.Problem) {
		t.Errorf("%s reads rules that other programs write: it must set Moves", c.Problem)
	}
	if after := c.Node.String(); after != before || c.Node.Log != nil {
		t.Errorf("the check changed the node: %q", c.Node.Log)
	}
	if c.Host == nil { // else the answers may change with each query
		c.replay(t, c.Node.Host(), c.Want)
		c.obey(t)
	}
}

// replay records the host, and compares the result on the recording, on its replay, and on the host
// itself. The recording passes on less of the host's files, which must not change the result.
func (c Case) replay(t *testing.T, h *host.Host, want string) {
	t.Helper()
	recording, snapshot := host.Record(h)
	got := Text(On(t.Context(), t, recording, c.Stage, c.Problem, c.Policy))
	replayed := Text(On(t.Context(), t, host.Replay(snapshot), c.Stage, c.Problem, c.Policy))
	Equal(t, c.What+", replayed", verdictAndGot(got), verdictAndGot(replayed)) // the texts of errors differ
	if strings.Contains(got, "left-out") || strings.Contains(got, "(value left out)") {
		got, _, _ = strings.Cut(got, "\n") // the texts differ in what the recording leaves out
		want, _, _ = strings.Cut(strings.TrimSpace(want), "\n")
	}
	Equal(t, c.What+", recorded", want, got)
}

func verdictAndGot(text string) string {
	lines := strings.Split(text, "\n")
	return strings.Join(slices.DeleteFunc(lines[1:], func(line string) bool { return !strings.HasPrefix(line, "got:") }), "\n") + lines[0]
}

// recordingRules records whether the rules were read.
type recordingRules struct {
	host.Rules
	read bool
}

func (r *recordingRules) Dumps(ctx context.Context, read func(string, io.Reader) error) error {
	r.read = true
	return r.Rules.Dumps(ctx, read)
}

func canMove(problem string) bool {
	return slices.ContainsFunc(catalog.Problems(), func(p checks.Problem) bool { return p.Name == problem && p.Moves })
}

// On returns the result of one problem on a host.
func On(ctx context.Context, t *testing.T, h *host.Host, stage checks.Stage, problem, extra string) checks.Result {
	t.Helper()
	list := catalog.For(Load(t, extra+"\ncheck \""+problem+"\" {}\n"), stage)
	for _, r := range checks.Inspect(ctx, h, stage, list).Results {
		if r.Name == problem {
			return r
		}
	}
	t.Fatalf("%s is not checked at stage %s", problem, stage)
	return checks.Result{}
}

// Text returns the parts of a result that a report prints, as lines.
func Text(r checks.Result) string {
	var b strings.Builder
	fmt.Fprintln(&b, r.Verdict)
	switch {
	case r.Err != nil:
		fmt.Fprintln(&b, "error:", r.Err)
		return b.String()
	case r.Verdict == verdict.Skipped:
		fmt.Fprintln(&b, "skipped:", r.State.Skip)
		return b.String()
	}
	fmt.Fprintf(&b, "want: %s\ngot: %s\n", r.State.Want, r.State.Got)
	if r.State.Cause != "" {
		fmt.Fprintln(&b, "because:", r.State.Cause)
	}
	for _, e := range r.State.Evidence {
		fmt.Fprintf(&b, "evidence: %s: %s\n", e.Source, e.Text)
	}
	if r.Verdict != verdict.Pass {
		fmt.Fprintln(&b, "remedy:", r.State.Remedy)
	}
	return b.String()
}
