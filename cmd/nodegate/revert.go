package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/cmd/nodegate/internal/revert"
	"nodegate/internal/host"
	"nodegate/units"
)

func newRevert() *cobra.Command {
	var force, dryRun bool
	c := &cobra.Command{
		Use:   "revert",
		Short: "Put back the settings of the running machine that nodegate has changed",
		Long: `Revert puts back what apply, the gate and watch's corrections have changed since
the machine started, as ` + report.ChangesFile + ` has it, the newest first:
parameters, MTUs and offloads get the value that they had before nodegate. It
leaves what somebody else has changed since, and says so (--force puts that back
too). Modules stay loaded. What watch set on links that appeared later is not
recorded: it goes with the link.

Exit status: 0 all is as before, 1 something was left, 2 wrong call.`,
		Example: `  nodegate revert --dry-run
  nodegate uninstall --revert      with everything that install wrote`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := needRoot("revert", ", or see what it would do: nodegate revert --dry-run"); err != nil && !dryRun {
				return err
			}
			h, err := host.Open("/")
			if err != nil {
				return err
			}
			defer h.Close()
			if !dryRun {
				if err := corrected(c.Context(), h); err != nil {
					return err
				}
			}
			return revertAll(c.Context(), h, force, dryRun, c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&force, "force", false, "also put back what somebody else has changed since")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be put back and write nothing")
	return c
}

// stateTime is how long systemd may take to say whether watch runs.
const stateTime = 5 * time.Second

// corrected returns an error where watch runs, and would set again what is put back, or where systemd does not say whether it does. Watch
// is "activating" until its first round is over, which corrects too, and while systemd waits to start it again.
func corrected(ctx context.Context, h *host.Host) error {
	if off, err := h.BreakGlass(units.BreakGlassFile); err == nil && off != "" {
		return nil // then watch corrects nothing
	}
	ctx, cancel := context.WithTimeout(ctx, stateTime)
	defer cancel()
	active, _, err := h.Units.State(ctx, units.WatchUnit) // "inactive" where systemd does not run
	switch {
	case err != nil:
		return fmt.Errorf("cannot tell whether %s runs, which would set again what is put back; run: touch %s; then this again: %w",
			units.WatchUnit, units.BreakGlassFile, err)
	case active == "inactive" || active == "failed":
		return nil
	}
	return fmt.Errorf("%[1]s is %[2]s and would set it again; run: touch %[3]s, or systemctl stop %[1]s, or nodegate uninstall --revert",
		units.WatchUnit, active, units.BreakGlassFile)
}

// revertAll puts back all settings, and keeps the record of those that it leaves.
func revertAll(ctx context.Context, h *host.Host, force, dryRun bool, w io.Writer) error {
	changes, err := report.ReadChanges()
	if err != nil {
		return err
	}
	steps, err := revert.Steps(ctx, h, changes)
	if err != nil {
		return err
	}
	var loaded []string
	var failed []*revert.Step
	left := map[string]bool{}
	done := 0
	restored := func(s *revert.Step, now string) {
		done++
		fmt.Fprintf(w, "  restore  %s  %s -> %s\n", s, now, s.Was)
	}
	for i := range steps {
		s := &steps[i]
		switch {
		case s.State == revert.Stays:
			loaded = append(loaded, s.Target)
		case s.State == revert.Foreign && !force:
			left[s.String()] = true
			fmt.Fprintf(w, "  left     %s is %s: nodegate made it %s, and somebody else has changed it since; --force makes it %s\n",
				s, s.Now, s.Set, s.Was)
		case s.State == revert.AsSet || s.State == revert.Foreign:
			if now := s.Now; dryRun || s.Do(ctx, h) == nil {
				restored(s, now)
			} else {
				failed = append(failed, s)
			}
		}
	}
	for _, s := range failed { // what it depends on may be as before only now: segmentation needs checksums
		now := s.Now
		if err := s.Do(ctx, h); err != nil {
			left[s.String()] = true
			fmt.Fprintf(w, "  left     %s: %v\n", s, err)
			continue
		}
		restored(s, now)
	}
	for i := range steps { // the kernel keeps some in step with others that were put back: interfaces' forwarding with net.ipv4.ip_forward
		if s := &steps[i]; s.State == revert.Back && !dryRun {
			if err := s.Reassert(ctx, h); err != nil {
				left[s.String()] = true
				fmt.Fprintf(w, "  left     %s: %v\n", s, err)
			}
		}
	}
	if len(loaded) > 0 {
		fmt.Fprintf(w, "  left     modules stay loaded: %s; a restart unloads them\n", strings.Join(loaded, ", "))
	}
	verb := "put back"
	if dryRun {
		verb = "would be put back"
	}
	fmt.Fprintf(w, "%s: %s\n", verb, report.Count(done, "setting"))
	if !dryRun && len(changes) > 0 {
		if err := report.ReplaceChanges(remaining(changes, left)); err != nil {
			return err
		}
	}
	if len(left) > 0 {
		return exit(exitFail)
	}
	return nil
}

// remaining returns the changes of the settings that were left.
func remaining(changes []report.AppliedChange, left map[string]bool) []report.AppliedChange {
	var all []report.AppliedChange
	for _, c := range changes {
		for _, name := range revert.Names(c) {
			if left[name] {
				all = append(all, c)
				break
			}
		}
	}
	return all
}

// offerRevert says that the running machine keeps the settings.
func offerRevert(w io.Writer) {
	changes, err := report.ReadChanges()
	for _, c := range changes {
		for _, write := range c.Writes {
			if write.Kind != checks.LoadModule && err == nil {
				fmt.Fprintln(w, "nodegate: the running machine keeps the settings that nodegate made, until it restarts; "+
					"`nodegate revert`, with any copy of the program, puts them back (next time: uninstall --revert)")
				return
			}
		}
	}
}
