package main

import (
	"context"
	"fmt"
	"io"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/setting"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/internal/plain"
	"nodegate/policy"
	"nodegate/units"
)

// printNext prints what an installation does at the next boot, how to see that, and how to undo it.
func printNext(ctx context.Context, w io.Writer, h *host.Host, p *policy.Policy, started bool) error {
	settings := report.Count(len(p.Modules)+len(p.Sysctls)+len(p.Links), "setting")
	gate := p.Gate.Unit + " " + p.Gate.Waits()
	when, see, undo := "at the next boot", "`systemctl status "+p.Gate.Unit+"` and `nodegate check`", "`nodegate uninstall --revert`"
	if !h.Live() {
		root := " --root " + plain.Quote(h.Root)
		when, see, undo = "when this image boots", "`nodegate check` on the node", "`nodegate uninstall"+root+"`"
		if len(catalog.For(p, checks.Image)) > 0 {
			see = "`nodegate check" + root + "` now, " + see
		}
	}
	_, err := fmt.Fprintf(w, "next    %s nodegate applies %s, then %s\n", when, settings, gate)
	if err == nil && h.Live() && !started {
		_, err = fmt.Fprintf(w, "now     `nodegate apply` sets them without a boot; the gate begins with the next start of %s\n", p.Gate.Unit)
	}
	if err == nil && h.Live() {
		ctx, cancel := context.WithTimeout(ctx, stateTime)
		defer cancel()
		watches := "does not run yet: `nodegate install --start` or the next boot starts it"
		if active, _, err := h.Units.State(ctx, units.WatchUnit); err == nil && active == "active" {
			watches = "runs: it corrects drift, and `nodegate status` prints what it found"
		}
		_, err = fmt.Fprintf(w, "watch   %s\n", watches)
	}
	if err == nil {
		_, err = fmt.Fprintf(w, "see     %s\nundo    %s\n", see, undo)
	}
	return err
}

// warnOfPrograms prints each program of the policy that nodegate would not run: on the node, one of check "exec" would hold kubelet.
func warnOfPrograms(ctx context.Context, h *host.Host, p *policy.Policy, stderr io.Writer) {
	for _, res := range checks.Inspect(ctx, h, checks.Image, setting.InstalledPrograms(p)).Results {
		if res.Differs() {
			fmt.Fprintf(stderr, "nodegate: %s: %s; %s\n", res.Name, res.State.Got, res.State.Remedy)
		}
	}
}
