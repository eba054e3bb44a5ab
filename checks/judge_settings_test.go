package checks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/host"
	"nodegate/host/hosttest"
)

// settingCase is a node, or a file tree, and what one judgement says of it.
type settingCase struct {
	name   string
	node   *hosttest.Machine
	tree   map[string]string // in place of node, at stage image; "-> TARGET" is a link
	policy string            // beside the check block
	want   string
}

// judgeSettings runs one judgement over nodes and compares all that it says.
func judgeSettings(t *testing.T, judgement string, stage checks.Stage, cases []settingCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var h *host.Host
			if c.tree != nil {
				h = treeOf(t, c.tree)
			} else {
				h = c.node.Host()
			}
			p := load(t, "check \""+judgement+"\" {}\n"+c.policy)
			report := checks.Inspect(t.Context(), h, stage, checks.For(p, stage))
			for _, r := range report.Results {
				if r.Name == judgement {
					got := said(r)
					if c.tree != nil {
						got = strings.ReplaceAll(got, h.Root, "ROOT")
					}
					equal(t, "judgement", c.want, got)
					return
				}
			}
			t.Errorf("%s is not made at stage %s", judgement, stage)
		})
	}
}

// said is everything that a person is told: of the evidence the first two.
func said(r checks.Result) string {
	var b strings.Builder
	b.WriteString(r.Verdict.String())
	switch {
	case r.Err != nil:
		fmt.Fprintf(&b, "\nerror: %v", r.Err)
	case r.State.Skip != "":
		fmt.Fprintf(&b, ": %s", r.State.Skip)
	default:
		fmt.Fprintf(&b, "\nwant: %s\ngot: %s", r.State.Want, r.State.Got)
	}
	if r.State.Cause != "" {
		fmt.Fprintf(&b, "\nbecause: %s", r.State.Cause)
	}
	for i, e := range r.State.Evidence {
		if i < 2 && r.Err == nil && r.State.Skip == "" {
			fmt.Fprintf(&b, "\nevidence: %s: %s", e.Source, e.Text)
		}
	}
	if r.Err == nil && !r.State.Holds && r.State.Skip == "" {
		fmt.Fprintf(&b, "\nremedy: %s", r.State.Remedy)
	}
	return b.String()
}

// treeOf is a file tree on disk, opened as an image.
func treeOf(t *testing.T, files map[string]string) *host.Host {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		at := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(to, at)
		} else {
			err = os.WriteFile(at, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// node is a machine of files, and of parameters by their path below /proc/sys.
func node(files map[string]string, sysctls map[string]string) *hosttest.Machine {
	m := &hosttest.Machine{Files: map[string]string{}}
	for name, content := range files {
		m.Files[name] = content
	}
	for key, value := range sysctls {
		m.Sysctl(key, value)
	}
	return m
}

// TestJudgementsSayEverything: a judgement without its texts explains nothing.
func TestJudgementsSayEverything(t *testing.T) {
	seen := map[string]bool{}
	for _, j := range checks.Judgements() {
		for what, text := range map[string]string{"Detects": j.Detects, "Symptom": j.Symptom, "How": j.How, "Remedy": j.Remedy, "Ref": j.Ref, "Severity": string(j.Severity)} {
			if strings.TrimSpace(text) == "" {
				t.Errorf("%s has no %s", j.Name, what)
			}
		}
		if seen[j.Name] || j.Name != strings.ToLower(j.Name) || len(j.Stages) == 0 || j.Inspect == nil {
			t.Errorf("%q: twice, not lower case, or without stages", j.Name)
		}
		seen[j.Name] = true
	}
}
