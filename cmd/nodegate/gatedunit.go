package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"nodegate/internal/host"
	"nodegate/internal/host/boot"
	"nodegate/internal/host/service"
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

// warnOfUnit prints why systemd would not run the gate's unit, and with it the gate. A unit that cannot be read is not judged: the
// check kubelet.unit reports it as unknown.
func warnOfUnit(planned *host.Host, g policy.Gate, answer service.Answer, stderr io.Writer) error {
	u, err := service.Read(planned.Files, g.Unit)
	if err != nil || u.Path == "" {
		return nil
	}
	faults, err := u.Judge(planned.Files, answer)
	if err != nil {
		return nil
	}
	for _, f := range faults {
		if f.Later && answer.Starts { // a one-shot service before the unit may mend it
			continue
		}
		if _, err := fmt.Fprintf(stderr, "nodegate: warning: %s: %s; %s\n", f.At, f.What, f.Remedy); err != nil {
			return err
		}
	}
	return nil
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

// checkBoot returns an error if a unit of nodegate would be in an ordering cycle. It prints the image's other cycles, and why systemd
// would not run the gate's unit.
func checkBoot(ctx context.Context, planned *host.Host, g policy.Gate, stderr io.Writer) error {
	b, err := boot.Test(ctx, planned.Files, g.Unit)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err == nil {
		err = warnOfUnit(planned, g, b.Unit, stderr)
	} else {
		_, err = fmt.Fprintf(stderr, "nodegate: warning: the boot is unknown: %v\n", err)
	}
	if err != nil {
		return err
	}
	for _, c := range b.Cycles {
		if c.Has("nodegate-") {
			return fmt.Errorf("systemd would drop a unit from each boot, to break an ordering cycle: %s; "+
				"remove an ordering from one of the other units, then install again", c)
		}
		const warning = "nodegate: warning: systemd drops a unit from each boot, to break an ordering cycle: %s\n"
		if _, err := fmt.Fprintf(stderr, warning, c); err != nil {
			return err
		}
	}
	return nil
}
