package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/internal/host"
	"nodegate/internal/report"
	"nodegate/policy"
	"nodegate/units"
)

func newGate() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "gate",
		Short: "Check again and again until the node is proven; made for ExecStartPre",
		Long: `Gate keeps a unit's start waiting until every blocking requirement passes, for as
long as the policy's gate block says, and repairs what it can if repair is set.
While the unit is held, the gate says why: on the console, in the journal, in
` + report.File + ` and in the unit's status.

Break glass: nodegate=off on the kernel command line, or the file
` + units.Disabled + `.`,
		Example: `  ExecStartPre=+` + units.Binary + ` gate     in a drop-in, as install writes it
  nodegate gate --budget 10s                     by hand`,
		Args: cobra.NoArgs,
	}
	o.policyFlags(c)
	budget := c.Flags().Duration("budget", 0, "wait this long, instead of the policy's budget")
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
			// The policy says whether to hold or to release, and it cannot be read.
			why := report.OneLine(firstLine(mistakes.String(), err))
			g.say(host.LevelError, "nodegate: held: the policy cannot be read: "+why+"; correct it, or touch "+units.Disabled, nil)
			fmt.Fprint(g.stderr, mistakes.String())
			return exit(exitUsage)
		}
		if c.Flags().Changed("budget") {
			p.Gate.Budget = *budget
		}
		return g.wait(c.Context(), p)
	}
	return c
}

// gate is one start attempt of the unit that waits.
type gate struct {
	host   *host.Host
	stderr io.Writer
	last   string // what was said last: the same reason is said once
}

// open reports whether the break glass is in force, and logs it: before the first
// check, and while the unit is held.
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

// wait checks until the node is proven, the budget ends or somebody breaks the glass.
func (g *gate) wait(ctx context.Context, p *policy.Policy) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, p.Gate.Budget)
	defer cancel()
	broken := false
	r := checks.Until(ctx, g.host, p.Gate, catalog.For(p, checks.Boot), func(r checks.Report) bool {
		report.KeepChanges(r)
		if err := report.Leave(report.File, report.New(g.host, p, r)); err != nil {
			g.log(host.LevelWarning, "nodegate: "+err.Error(), nil) // an ordinary user tries the gate: not a reason to be held
		}
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
		line := fmt.Sprintf("nodegate: node proven, %s after %s", report.Count(len(r.Results), "requirement"), waited)
		host.Status(line)
		if g.last != "" {
			g.say(host.LevelNotice, line, nil)
		} else {
			g.log(host.LevelNotice, line, nil)
		}
		return nil
	case p.Gate.OnTimeout == policy.Release:
		g.say(host.LevelError, fmt.Sprintf("nodegate: RELEASED %s after %s although the node is NOT proven (on_timeout = \"release\"): %s",
			p.Gate.Unit, waited, g.last), nil)
		host.Status("nodegate: released, NOT proven: " + g.last)
		return nil
	}
	g.log(host.LevelError, fmt.Sprintf("nodegate: %s stays held after %s; systemd tries again", p.Gate.Unit, waited), nil)
	if r.Verdict() == checks.Unknown {
		return exit(exitUnknown)
	}
	return exit(exitFail)
}

// explain logs why the unit is held: one line a cause, and only when the first
// cause is another than last time.
func (g *gate) explain(r checks.Report) {
	causes := report.Blocking(r)
	if len(causes) == 0 || causes[0].Text == g.last {
		return
	}
	g.last = causes[0].Text
	more := ""
	if len(causes) > 1 {
		more = fmt.Sprintf(" (and %d more)", len(causes)-1)
	}
	host.Status("nodegate: held by " + g.last + more)
	for _, cause := range causes {
		g.say(host.LevelError, "nodegate: held by "+cause.Text, cause.Fields)
	}
}

// say writes to the console, and to the journal or standard error.
func (g *gate) say(level host.Level, line string, fields map[string]string) {
	host.Console(line)
	g.log(level, line, fields)
}

func (g *gate) log(level host.Level, line string, fields map[string]string) {
	if !host.Log(level, line, fields) {
		fmt.Fprintln(g.stderr, line)
	}
}

func firstLine(text string, err error) string {
	for line := range bytes.Lines([]byte(text)) {
		return string(bytes.TrimSpace(line))
	}
	return err.Error()
}
