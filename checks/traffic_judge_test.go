package checks_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/host"
	"nodegate/host/hosttest"
)

// judgedCase is a recorded node and what one judgement says of it, as
// judgedText prints it.
type judgedCase struct {
	what, name string
	stage      checks.Stage
	policy     string // beside the check block
	node       *hosttest.Machine
	host       func(*host.Host) // changes what the node answers
	want       string
}

// judgedText is a result as lines: verdict, want and got, the first evidence,
// the remedy where it does not hold.
func judgedText(r checks.Result) string {
	var b strings.Builder
	fmt.Fprintln(&b, r.Verdict)
	switch {
	case r.Err != nil:
		fmt.Fprintln(&b, "error:", r.Err)
		return b.String()
	case r.Verdict == checks.Skip:
		fmt.Fprintln(&b, "skip:", r.State.Skip)
		return b.String()
	}
	fmt.Fprintf(&b, "want: %s\ngot: %s\n", r.State.Want, r.State.Got)
	if len(r.State.Evidence) > 0 {
		fmt.Fprintf(&b, "evidence: %s: %s\n", r.State.Evidence[0].Source, r.State.Evidence[0].Text)
	}
	if r.State.Cause != "" {
		fmt.Fprintln(&b, "because:", r.State.Cause)
	}
	if r.Verdict != checks.Pass {
		fmt.Fprintln(&b, "remedy:", r.State.Remedy)
	}
	return b.String()
}

func judgeOn(ctx context.Context, t *testing.T, h *host.Host, stage checks.Stage, name, extra string) checks.Result {
	t.Helper()
	list := checks.For(load(t, extra+"\ncheck \""+name+"\" {}\n"), stage)
	for _, r := range checks.Inspect(ctx, h, stage, list).Results {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("%s is not judged at stage %s", name, stage)
	return checks.Result{}
}

func runJudged(t *testing.T, cases []judgedCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name+"/"+c.what, func(t *testing.T) {
			stage := c.stage
			if stage == "" {
				stage = checks.Run
			}
			if c.node.Files == nil {
				c.node.Files = map[string]string{}
			}
			before := c.node.String()
			h := c.node.Host()
			if c.host != nil {
				c.host(h)
			}
			equal(t, c.what, c.want, judgedText(judgeOn(t.Context(), t, h, stage, c.name, c.policy)))
			if after := c.node.String(); after != before || c.node.Log != nil {
				t.Errorf("the judgement changed the node: %q", c.node.Log)
			}
		})
	}
}

// TestTrafficJudgementsTellEverything: explain and docs/checks.md print these texts.
func TestTrafficJudgementsTellEverything(t *testing.T) {
	for _, j := range checks.Judgements() {
		for what, text := range map[string]string{"Detects": j.Detects, "Symptom": j.Symptom, "How": j.How, "Remedy": j.Remedy, "Ref": j.Ref} {
			if text == "" {
				t.Errorf("%s has no %s", j.Name, what)
			}
		}
		if len(j.Stages) == 0 || j.Severity == "" || j.Inspect == nil {
			t.Errorf("%s has no stage, severity or Inspect", j.Name)
		}
	}
}
