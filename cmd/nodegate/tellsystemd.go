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

// untold reports whether systemd does not know yet that the unit has a gate: an install was ended before it had told.
func untold(ctx context.Context, h *host.Host, gated string, stderr io.Writer) bool {
	if !h.SystemdRuns() {
		return false
	}
	outdated, err := h.Units.Outdated(ctx, gated, units.GateFile(gated))
	return err == nil && outdated && finishing(stderr)
}

// finishing says why systemd is told though no file changes.
func finishing(stderr io.Writer) bool {
	fmt.Fprintln(stderr, "nodegate: systemd does not know yet what an earlier run changed: telling it now")
	return true
}

// ours are the units that an uninstall stops.
var ours = []string{units.PublishTimer, units.WatchUnit, units.ApplyUnit}

// left reports whether a unit of ours runs whose file is gone: an uninstall was ended before systemd had stopped it.
func left(ctx context.Context, h *host.Host, stderr io.Writer) bool {
	return h.SystemdRuns() && slices.ContainsFunc(ours, func(unit string) bool {
		lacks, _, err := h.LacksUnit(unit)
		if err != nil || !lacks {
			return false
		}
		active, _, err := h.Units.State(ctx, unit)
		return err == nil && active != "inactive"
	}) && finishing(stderr)
}

// reloadTimeout is systemctl's own for daemon-reload: generators run again, and
// systemd gives those 90 s.
const reloadTimeout = 3 * time.Minute

// tellSystemd makes systemd read its units again, and enables some; without any, it stops ours.
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
	if err == nil && !slices.Contains(enable, units.PublishTimer) {
		err = h.Units.Stop(ctx, units.PublishTimer)
	}
	if err == nil {
		err = h.Units.Enable(ctx, enable...)
	}
	if active, _, stateErr := h.Units.State(ctx, units.WatchUnit); stateErr == nil && active == "active" {
		fmt.Fprintf(stderr, "nodegate: %s still runs what was installed before; run: systemctl restart %s\n", units.WatchUnit, units.WatchUnit)
	}
	return err
}

// startTimeout is for the units' own starts, one after the other.
const startTimeout = 2 * time.Minute

func startUnits(ctx context.Context, h *host.Host, started []string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := h.Units.Reload(ctx); err != nil {
		return err
	}
	return h.Units.Restart(ctx, started...)
}

// stopUnits stops what was installed and still runs, or counts as active: systemd would keep a unit whose file is gone.
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
