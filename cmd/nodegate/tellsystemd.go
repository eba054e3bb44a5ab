package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"nodegate/internal/host"
	"nodegate/units"
)

// reloadPending reports whether systemd has not loaded the unit's gate yet: an earlier install was interrupted before the reload.
func reloadPending(ctx context.Context, h *host.Host, gated string, stderr io.Writer) bool {
	if !h.SystemdRuns() {
		return false
	}
	loaded, err := h.Units.Loaded(ctx, gated)
	return err == nil && loaded.Lacks(units.GateFile(gated)) && printFinishing(stderr)
}

// printFinishing prints why systemd is reloaded although no file has changed, and returns true.
func printFinishing(stderr io.Writer) bool {
	fmt.Fprintln(stderr, "nodegate: systemd has not loaded the changes of an earlier run: reloading it now")
	return true
}

// ours lists the units that an uninstall stops.
var ours = []string{units.WatchUnit, units.ApplyUnit}

// unitsLeft reports whether one of our units still runs without its file: an earlier uninstall was interrupted before it stopped the unit.
func unitsLeft(ctx context.Context, h *host.Host, stderr io.Writer) bool {
	return h.SystemdRuns() && slices.ContainsFunc(ours, func(unit string) bool {
		lacks, _, err := h.LacksUnit(unit)
		if err != nil || !lacks {
			return false
		}
		active, _, err := h.Units.State(ctx, unit)
		return err == nil && active != "inactive"
	}) && printFinishing(stderr)
}

// reloadTimeout is systemctl's own timeout for daemon-reload, which re-runs the generators;
// systemd gives them 90 s.
const reloadTimeout = 3 * time.Minute

// tellSystemd reloads systemd and enables units; with nil it stops our units instead.
func tellSystemd(ctx context.Context, h *host.Host, enable []string, stderr io.Writer) error {
	if !h.SystemdRuns() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	if enable == nil {
		return stopUnits(ctx, h)
	}
	err := h.Units.Reload(ctx)
	if err == nil {
		err = h.Units.Enable(ctx, enable...)
	}
	if active, _, stateErr := h.Units.State(ctx, units.WatchUnit); stateErr == nil && active == "active" {
		fmt.Fprintf(stderr, "nodegate: %s still runs the previous version; run `systemctl restart %s`\n", units.WatchUnit, units.WatchUnit)
	}
	return err
}

// needSystemd returns an error if a flag needs the systemd of the tree, and none runs.
func needSystemd(h *host.Host, set bool, flag string) error {
	if set && !h.SystemdListens() {
		return fmt.Errorf("no systemd runs in %s, which %s needs; leave it out", h.Root, flag)
	}
	return nil
}

// startTimeout bounds the start of all units, one after another.
const startTimeout = 2 * time.Minute

func startUnits(ctx context.Context, h *host.Host, started []string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := h.Units.Reload(ctx); err != nil {
		return err
	}
	return h.Units.Restart(ctx, started...)
}

// stopUnits stops our units that still run or count as active: systemd would keep them even without their files.
func stopUnits(ctx context.Context, h *host.Host) error {
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	err := h.Units.Reload(ctx)
	for _, unit := range ours {
		if err == nil {
			err = h.Units.Stop(ctx, unit)
		}
	}
	return err
}
