package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nodegate/cmd/nodegate/internal/gate"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/policy"
	"nodegate/units"
)

func newGate() *cobra.Command {
	var o policyInput
	c := &cobra.Command{
		Use:   "gate",
		Short: "Hold a unit's start until the node is proven (for ExecStartPre)",
		Long: `Gate holds a unit's start until every blocking requirement passes, or until the
budget in the policy's gate block is used up. If the gate block sets repair,
gate also repairs this machine, as apply does; --check-only prevents that.
Started from a terminal, it prints every change that it makes.

While the unit is held, the gate reports the reason on the console, in the
journal, in ` + report.File + ` and in the unit's status.

Break glass: put nodegate=off on the kernel command line, or create the file
` + units.BreakGlassFile + `.`,
		Example: `  ExecStartPre=+` + units.Binary + ` gate       in install's drop-in
  nodegate gate --budget 10s                       from a terminal`,
		Args: cobra.NoArgs,
	}
	o.policyFlags(c)
	_ = c.Flags().MarkHidden("root") // it is refused with what to do instead
	o.guardFlag(c)
	budget := c.Flags().Duration("budget", 0, "wait this long instead of the policy's budget")
	only := c.Flags().Bool("check-only", false, "change nothing, even if the policy sets repair")
	c.RunE = func(c *cobra.Command, _ []string) error {
		h, err := o.machine()
		if err != nil {
			return err
		}
		defer h.Close()
		if !h.Live() {
			return errors.New("gate works on the running machine; for a file tree run `nodegate check --root DIR`")
		}
		g := gate.Gate{Host: h, Call: repeated(c), Voice: gate.Voice{Stderr: c.ErrOrStderr()}, BreakGlassFile: units.BreakGlassFile}
		if g.BreakGlass() {
			return nil
		}
		o.late = func(fact string) {
			g.Voice.Say(host.LevelWarning, fmt.Sprintf("nodegate: the fact %s has not been read in %s", fact, factTime))
		}
		read := o.loadInTime(h)
		o.late = nil // the checks name a fact that stays unknown
		if read.err != nil {
			g.Unreadable(firstLine(read.mistakes, read.err), read.mistakes)
			return exit(exitUsage)
		}
		p := read.policy
		if *budget < 0 {
			return fmt.Errorf("--budget %s: write a time such as 30s", budget)
		}
		if c.Flags().Changed("budget") {
			p.Gate.Budget = *budget
		}
		p.Gate.Repair = p.Gate.Repair && !*only
		g.Again = func() *policy.Policy {
			now, err := o.evaluate(h, read.texts, io.Discard)
			if err != nil {
				return nil
			}
			return now
		}
		outcome := g.Run(c.Context(), p)
		switch outcome {
		case gate.Proven, gate.GlassBroken, gate.Released, gate.Tolerated:
			return nil
		}
		if outcome == gate.Unknown {
			return exit(exitUnknown)
		}
		return exit(exitFail)
	}
	return c
}

// policyTime bounds reading the policy, which has the budget: kubelet's version alone may take 5 s.
const policyTime = 10 * time.Second

// loaded is a policy that was read, or the reason why it could not be.
type loaded struct {
	policy   *policy.Policy
	texts    []policy.File
	mistakes string
	err      error
}

// loadInTime loads the policy beside the clock: its file system may hang.
func (o *policyInput) loadInTime(h *host.Host) loaded {
	var q gate.Question[loaded]
	read, answered := q.Ask(policyTime, func() loaded {
		var mistakes bytes.Buffer
		p, texts, err := o.load(h, &mistakes)
		return loaded{p, texts, mistakes.String(), err}
	})
	if !answered {
		where := strings.Join(o.policies, ", ")
		read.err = fmt.Errorf("reading %s has not returned for %s", cmp.Or(where, units.PolicyDir), policyTime)
	}
	return read
}

func firstLine(text string, err error) string {
	for line := range bytes.Lines([]byte(text)) {
		return string(bytes.TrimSpace(line))
	}
	return err.Error()
}
