package main

import (
	"fmt"

	"nodegate/internal/host"
	"nodegate/policy"
	"nodegate/units"
)

// plannedHost returns the host as it will be after an installation of the files.
func plannedHost(h *host.Host, files []units.File) *host.Host {
	planned := map[string]host.PlannedFile{}
	for _, f := range files {
		planned[f.Path] = host.PlannedFile{Content: f.Content, Target: f.Target, Mode: f.Mode}
	}
	return h.With(planned)
}

// checkGateFirst returns an error if a command of the gate's unit leaves something running before the gate decides. The gate cannot
// precede it: a drop-in's ExecStartPre= comes after those of the unit. Repeating the unit's lines after the gate in our drop-in would
// hide later changes of them, so that is left to the operator, who owns them.
func checkGateFirst(planned *host.Host, g policy.Gate) error {
	early, gated, err := planned.BeforeGate(g.Unit)
	if err != nil || !gated || early == nil {
		return err
	}
	first := early[0]
	return fmt.Errorf("%s: %s=%s %s before the gate of %s decides, so a node that fails would still run it; %s",
		first.Entry.At(), first.Entry.Key, first.Entry.Value, first.What, g.Unit, host.GateFirst(g.Unit, first))
}
