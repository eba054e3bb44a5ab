package kubelet

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/service"
	"nodegate/internal/sorted"
	"nodegate/policy"
)

// unit: systemd may never start kubelet, and with it the gate.
func unit() checks.Problem {
	return checks.Problem{
		Name: "kubelet.unit", Stages: []checks.Stage{checks.Image, checks.Boot, checks.Run}, Severity: policy.Block,
		Detects: "systemd does not start the gate's unit, or starts it without some of its settings: it cannot be loaded, is masked or " +
			"enabled nowhere, requires a unit that does not exist, or names a missing file, directory or program.",
		Symptom: "The Node never appears, although the gate reports no failure: systemd never runs the gate, or reports bad-setting, " +
			"Result=resources, 200/CHDIR or 203/EXEC.",
		How: "Asks systemd about the unit of the policy's gate block: the running one over D-Bus; for an image this machine's, in its test " +
			"mode and without privileges. Then looks for the programs, directories and files of variables that the unit names. What " +
			"a program may still mend at the first boot, a unit enabled nowhere or a missing file outside /usr, is a warning. In an image a " +
			"missing file of variables is left to a one-shot service before the unit. Unknown, as a warning, if no systemd can be asked. " +
			"Skipped if the unit does not exist, or if only such a file is missing.",
		Remedy:  "correct the named line, then run `systemctl daemon-reload`",
		Ref:     "https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html",
		Inspect: inspectUnit,
	}
}

func inspectUnit(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	name := p.Gate.Unit
	s := checks.Passing("a unit that systemd starts")
	u, err := service.Read(h.Files, name)
	if err != nil {
		return s, err
	}
	if u.Path == "" {
		s.Skip = name + " does not exist here"
		return s, nil
	}
	loaded, err := h.Units.Loaded(ctx, name)
	if err != nil {
		return s, err
	}
	var faults []service.Fault
	answer := loaded.Unit
	if u.Masked && strings.HasPrefix(u.Path, "/run/") {
		faults = append(faults, service.Fault{At: u.Path, Text: "masked", Doubt: true, What: name + " is masked until the next boot",
			Remedy: "to start it before that, run `systemctl unmask --runtime " + name + "`"})
		answer.State = ""
	}
	if answer.State == "" {
		boot, err := h.Units.Boot(ctx, name)
		if err != nil { // the fault is this environment's
			s.Minor = true
			return s, fmt.Errorf("no systemd can be asked about %s: %w", name, err)
		}
		answer = boot.Unit
	}
	found, err := u.Judge(h.Files, answer)
	if err != nil {
		return s, err
	}
	faults = append(faults, found...)
	if loaded.Changed {
		faults = append(faults, service.Fault{At: "systemctl show " + name, Text: "NeedDaemonReload=yes", Doubt: true,
			What: "systemd has not loaded the changed files of " + name, Remedy: "run `systemctl daemon-reload`"})
	}
	if early, gated := u.BeforeGate(); gated && early != nil {
		faults = append(faults, service.Fault{At: early[0].Entry.At(), Text: early[0].Entry.Key + "=" + early[0].Entry.Value,
			What: early[0].Entry.At() + " " + early[0].What + " before the gate decides", Remedy: host.GateFirst(name, early[0])})
	}
	switch {
	case len(faults) == 0:
		return s, nil
	case !slices.ContainsFunc(faults, func(f service.Fault) bool { return !f.Later }):
		s.Skip = "left to the first boot, which must write a file of variables of " + name + " before it starts"
		return s, nil
	}
	sorted.By(faults, func(a, b service.Fault) int { // the certain ones first
		return strings.Compare(strconv.FormatBool(a.Doubt), strconv.FormatBool(b.Doubt))
	})
	var what []string
	for _, f := range faults {
		what = append(what, f.What)
		s.Evidence = append(s.Evidence, checks.Seen(f.At, f.Text))
	}
	s.Differs(strings.Join(what, "; "), faults[0].Remedy)
	s.Minor = faults[0].Doubt
	return s, nil
}
