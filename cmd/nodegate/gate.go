package main

import (
	"bytes"
	"errors"

	"github.com/spf13/cobra"

	"nodegate/internal/gate"
	"nodegate/internal/report"
	"nodegate/units"
)

func newGate() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "gate",
		Short: "Repair and check again and again until the node is proven; made for ExecStartPre",
		Long: `Gate repairs this machine, as apply does, and only looks with --check-only. It keeps
a unit's start waiting until every blocking requirement passes, for as long as the
policy's gate block says, and repairs what it can if repair is set there.
By hand it prints every change that it makes.
While the unit is held, the gate says why: on the console, in the journal, in
` + report.File + ` and in the unit's status.

Break glass: nodegate=off on the kernel command line, or the file
` + units.Disabled + `.`,
		Example: `  ExecStartPre=+` + units.Binary + ` gate     in a drop-in, as install writes it
  nodegate gate --budget 10s                     by hand`,
		Args: cobra.NoArgs,
	}
	o.policyFlags(c)
	o.guardFlag(c)
	budget := c.Flags().Duration("budget", 0, "wait this long, instead of the policy's budget")
	only := c.Flags().Bool("check-only", false, "change nothing, whatever the policy's repair says")
	c.RunE = func(c *cobra.Command, _ []string) error {
		h, err := o.machine()
		if err != nil {
			return err
		}
		defer h.Close()
		if !h.Live() {
			return errors.New("the gate is for the running machine; for a file tree use: nodegate check --root DIR")
		}
		g := gate.Gate{Host: h, Voice: gate.Voice{Stderr: c.ErrOrStderr()}, Disabled: units.Disabled}
		if g.SwitchedOff() {
			return nil
		}
		var mistakes bytes.Buffer
		p, _, err := o.load(h, &mistakes)
		if err != nil {
			g.Unreadable(firstLine(mistakes.String(), err), mistakes.String())
			return exit(exitUsage)
		}
		if c.Flags().Changed("budget") {
			p.Gate.Budget = *budget
		}
		p.Gate.Repair = p.Gate.Repair && !*only
		switch g.Run(c.Context(), p) {
		case gate.Proven, gate.Off, gate.Released, gate.Tolerated:
			return nil
		case gate.Unknown:
			return exit(exitUnknown)
		}
		return exit(exitFail)
	}
	return c
}

func firstLine(text string, err error) string {
	for line := range bytes.Lines([]byte(text)) {
		return string(bytes.TrimSpace(line))
	}
	return err.Error()
}
