package main

import (
	"context"
	"fmt"
	"io"
	"slices"
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
		Short: "Restore the running machine's settings that nodegate changed",
		Long: `Revert undoes the changes that apply, the gate and watch have made since the
machine started, newest first. It reads them from ` + report.ChangesFile + `.
Sysctls, MTUs and offloads get the values that they had before nodegate.

Revert reports and leaves a setting that another program has changed since then;
--force restores it too. Modules stay loaded. Settings that watch made on links
that appeared later are not recorded; they disappear with the link.

Exit status: 0 everything is restored, 1 some settings were left, 2 usage error.`,
		Example: `  nodegate revert --dry-run
  nodegate uninstall --revert     also remove the files that install wrote`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := needRoot("revert", ", or preview its changes with `nodegate revert --dry-run`"); err != nil && !dryRun {
				return err
			}
			h, err := host.Open("/")
			if err != nil {
				return err
			}
			defer h.Close()
			if !dryRun {
				if err := checkWatchStopped(c.Context(), h); err != nil {
					return err
				}
			}
			return revertAll(c.Context(), h, force, dryRun, c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&force, "force", false, "also restore settings that another program has changed since")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "show the settings that would be restored, and write nothing")
	return c
}

// stateTime bounds the query for the state of watch's unit.
const stateTime = 5 * time.Second

// checkWatchStopped returns an error if watch runs and would undo the revert, or if its state is unknown. Watch is "activating" during its
// first round, which corrects settings too, and while systemd waits to restart it.
func checkWatchStopped(ctx context.Context, h *host.Host) error {
	if off, err := h.BreakGlass(units.BreakGlassFile); err == nil && off != "" {
		return nil // with break-glass, watch corrects nothing
	}
	ctx, cancel := context.WithTimeout(ctx, stateTime)
	defer cancel()
	active, _, err := h.Units.State(ctx, units.WatchUnit) // "inactive" if systemd does not run
	switch {
	case err != nil:
		return fmt.Errorf("could not determine whether %s runs and would undo the revert; run `touch %s`, then repeat this command: %w",
			units.WatchUnit, units.BreakGlassFile, err)
	case active == "inactive" || active == "failed":
		return nil
	}
	return fmt.Errorf("%[1]s is %[2]s and would undo the revert; run `touch %[3]s`, `systemctl stop %[1]s` or `nodegate uninstall --revert`",
		units.WatchUnit, active, units.BreakGlassFile)
}

// revertAll restores all settings, and keeps the record of the settings that it leaves.
func revertAll(ctx context.Context, h *host.Host, force, dryRun bool, w io.Writer) error {
	changes, damaged, err := report.ReadChanges()
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
	leave := func(s *revert.Step, format string, args ...any) {
		left[s.String()] = true
		fmt.Fprintf(w, "  left     "+format+"\n", args...)
	}
	var plan, alone []*revert.Step
	for i := range steps {
		s := &steps[i]
		switch {
		case s.State == revert.Stays:
			loaded = append(loaded, s.Target)
		case s.State == revert.Foreign && !force:
			leave(s, "%s is %s: nodegate set it to %s, and another program has changed it since; --force sets it to %s", s, s.Now, s.Set, s.Was)
		default:
			plan = append(plan, s)
			follows := slices.ContainsFunc(alone, func(o *revert.Step) bool { return o.Target == s.Along })
			if s.State != revert.Back && s.State != revert.Deleted && !follows {
				alone = append(alone, s)
			}
		}
	}
	for _, s := range alone {
		if now := s.Now; dryRun || s.Do(ctx, h) == nil {
			restored(s, now)
		} else {
			failed = append(failed, s)
		}
	}
	reassert := func() { // restoring one setting can change another: net.ipv4.ip_forward sets every interface's forwarding
		for _, s := range plan {
			if dryRun && s.State != revert.Deleted || left[s.String()] || slices.Contains(failed, s) {
				continue
			}
			if err := s.Reassert(ctx, h); err != nil {
				leave(s, "%s: %v", s, err)
			}
		}
	}
	reassert()
	retry := failed
	failed = nil
	// A setting can need another one first: segmentation needs checksums, and vm.dirty_bytes is 0 once vm.dirty_ratio is set.
	for _, s := range retry {
		now := s.Now
		if err := s.Do(ctx, h); err != nil {
			leave(s, "%s: %v", s, err)
			continue
		}
		restored(s, now)
	}
	if len(retry) > 0 {
		reassert()
	}
	if len(loaded) > 0 {
		fmt.Fprintf(w, "  left     modules stay loaded: %s; a reboot unloads them\n", strings.Join(loaded, ", "))
	}
	for _, place := range damaged {
		left[place] = true
		fmt.Fprintf(w, "  left     %s is not a record of a change, so it cannot be undone; delete the line once its setting is right\n", place)
	}
	verb := "restored"
	if dryRun {
		verb = "would be restored"
	}
	fmt.Fprintf(w, "%s: %s\n", verb, report.Count(done, "setting"))
	if !dryRun && len(changes) > 0 && damaged == nil { // a damaged line stays until the operator has deleted it
		if err := report.ReplaceChanges(changes, remaining(changes, left)); err != nil {
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

// offerRevert prints that the running machine keeps its settings, and how to restore them.
func offerRevert(w io.Writer) {
	changes, _, err := report.ReadChanges()
	for _, c := range changes {
		for _, write := range c.Writes {
			if write.Kind != checks.LoadModule && err == nil {
				fmt.Fprintln(w, "nodegate: the running machine keeps nodegate's settings until it reboots; "+
					"to restore the old ones, run `nodegate revert` with any copy of the binary (next time: `nodegate uninstall --revert`)")
				return
			}
		}
	}
}
