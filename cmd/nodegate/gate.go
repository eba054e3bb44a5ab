package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/internal/host"
	"nodegate/policy"
	"nodegate/units"
)

func newGate() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "gate",
		Short: "Check again and again until the node is proven; made for ExecStartPre",
		Long: `Gate holds a unit's start until every blocking requirement holds, for as long as
the policy's gate block says, and repairs what it can where that says so. While
it holds it says why: on the console, in the journal, in ` + reportFile + `
and in the unit's status.

Break glass: nodegate=off on the kernel command line, or the file
` + units.Disabled + `.`,
		Example: `  ExecStartPre=+` + units.Binary + ` gate     in a drop-in, as install writes it
  nodegate gate --budget 10s                     by hand`,
		Args: cobra.NoArgs,
	}
	o.policyFlags(c)
	budget := c.Flags().Duration("budget", 0, "wait this long instead of what the policy says")
	c.RunE = func(c *cobra.Command, _ []string) error {
		h, err := o.machine()
		if err != nil {
			return err
		}
		defer h.Close()
		if !h.Live() {
			return errors.New("the gate is for the running machine; for a file tree use: nodegate check --root DIR")
		}
		g := gate{host: h, stderr: c.ErrOrStderr()}
		if g.open() {
			return nil
		}
		var mistakes bytes.Buffer
		p, _, err := o.load(h, &mistakes)
		if err != nil {
			// Which way to fail is the policy's choice, and it cannot be read.
			g.say(host.LevelError, "nodegate: HELD: the policy cannot be read: "+oneLine(firstLine(mistakes.String(), err))+"; correct it, or touch "+units.Disabled, nil)
			fmt.Fprint(g.stderr, mistakes.String())
			return exit(exitUsage)
		}
		if c.Flags().Changed("budget") {
			p.Gate.Budget = *budget
		}
		return g.hold(c.Context(), p)
	}
	return c
}

// gate is one start attempt of the unit that waits.
type gate struct {
	host   *host.Host
	stderr io.Writer
	last   string // what was said last: the same reason is said once
}

// open tells whether somebody broke the glass, and says so: before the first
// check, and while the gate holds.
func (g *gate) open() bool {
	why := g.host.BreakGlass(units.Disabled)
	if why == "" {
		return false
	}
	line := "nodegate: gate is switched off by " + why + ": this node is NOT proven"
	g.say(host.LevelWarning, line, nil)
	host.Status(line)
	return true
}

func (g *gate) hold(ctx context.Context, p *policy.Policy) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, p.Gate.Budget)
	defer cancel()
	broken := false
	r := checks.Until(ctx, g.host, p.Gate, catalog.For(p, checks.Boot), func(r checks.Report) bool {
		recordChanges(r)
		g.report(p, r)
		if r.Verdict() != checks.Pass {
			g.explain(r)
			broken = g.open()
		}
		return !broken
	})
	waited := time.Since(began).Round(time.Millisecond)
	switch {
	case broken:
		return nil
	case r.Verdict() == checks.Pass:
		line := fmt.Sprintf("nodegate: node proven, %s after %s", count(len(r.Results), "requirement"), waited)
		host.Status(line)
		if g.last != "" {
			g.say(host.LevelNotice, line, nil)
		} else {
			g.log(host.LevelNotice, line, nil)
		}
		return nil
	case p.Gate.OnTimeout == policy.Release:
		g.say(host.LevelError, fmt.Sprintf("nodegate: RELEASED %s after %s although the node is NOT proven (on_timeout = \"release\"): %s", p.Gate.Unit, waited, g.last), nil)
		host.Status("nodegate: released, NOT proven: " + g.last)
		return nil
	}
	g.log(host.LevelError, fmt.Sprintf("nodegate: %s stays held after %s; systemd tries again", p.Gate.Unit, waited), nil)
	return code(r.Verdict())
}

// explain says why the unit is held: one line a cause, and only when the
// reason has changed since it was said.
func (g *gate) explain(r checks.Report) {
	var lines []string
	var fields []map[string]string
	for _, res := range r.Results {
		if res.Metadata.Severity != policy.Block || res.Verdict == checks.Pass || res.Verdict == checks.Skip || res.IsSymptom() {
			continue
		}
		out := newResult(res)
		line := fmt.Sprintf("%s: %s (%s)", res.Name, says(out), out.Source)
		if out.Remedy != "" {
			line += "; " + out.Remedy
		}
		lines = append(lines, line)
		fields = append(fields, map[string]string{
			"NODEGATE_CHECK": res.Name, "NODEGATE_VERDICT": res.Verdict.String(), "NODEGATE_WANT": res.State.Want,
			"NODEGATE_GOT": res.State.Got, "NODEGATE_SOURCE": out.Source, "NODEGATE_REMEDY": out.Remedy,
		})
	}
	if len(lines) == 0 || lines[0] == g.last {
		return
	}
	g.last = lines[0]
	more := ""
	if len(lines) > 1 {
		more = fmt.Sprintf(" (and %d more)", len(lines)-1)
	}
	host.Status("nodegate: held by " + lines[0] + more)
	for i, line := range lines {
		g.say(host.LevelError, "nodegate: HELD by "+line, fields[i])
	}
}

// say tells the console, and the journal or whoever called.
func (g *gate) say(level host.Level, line string, fields map[string]string) {
	host.Console(line)
	g.log(level, line, fields)
}

func (g *gate) log(level host.Level, line string, fields map[string]string) {
	if !host.Log(level, line, fields) {
		fmt.Fprintln(g.stderr, line)
	}
}

// report leaves what was found for other tools. That it cannot be written (an
// ordinary user tries the gate) must not hold the node.
func (g *gate) report(p *policy.Policy, r checks.Report) {
	var b bytes.Buffer
	if err := writeJSON(&b, newDocument(g.host, p, r)); err != nil {
		return
	}
	err := os.MkdirAll(runDir, 0o755)
	if err == nil {
		err = replaceFile(reportFile, b.Bytes(), 0o644)
	}
	if err != nil {
		g.log(host.LevelWarning, "nodegate: "+err.Error(), nil)
	}
}

func firstLine(text string, err error) string {
	for line := range bytes.Lines([]byte(text)) {
		return string(bytes.TrimSpace(line))
	}
	return err.Error()
}
