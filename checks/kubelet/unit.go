package kubelet

import (
	"context"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/service"
	"nodegate/policy"
)

// unit: systemd may never start kubelet, and with it the gate.
func unit() checks.Problem {
	return checks.Problem{
		Name: "kubelet.unit", Stages: []checks.Stage{checks.Image, checks.Boot, checks.Run}, Severity: policy.Block,
		Detects: "systemd does not start the gate's unit, or starts it without some of its settings: it cannot be loaded, is masked or " +
			"enabled nowhere, requires a missing unit, or names a missing file, directory, user or program.",
		Symptom: "The Node never appears, although the gate reports no failure: systemd never runs the gate, or reports bad-setting, " +
			"Result=resources, 200/CHDIR, 203/EXEC or 217/USER.",
		How: "Reads the unit of the policy's gate block with its drop-ins, and judges ExecStart=, Environment=, EnvironmentFile=, " +
			"WorkingDirectory=, User=, Group=, Requires=, BindsTo=, conditions on files, Restart=, start limits, and what enables or starts " +
			"the unit. On a running machine systemd's LoadState overrides the files. A file that another unit, a tmpfiles.d line, " +
			"kubeadm join, nodeadm, nodeup or a similar program creates is not missing; if cloud-init or Ignition may create it, the " +
			"check only warns. Skipped if the unit does not exist.",
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
	var active, file string
	if h.Live() {
		if active, file, err = h.Units.State(ctx, name); err != nil {
			return s, err
		}
	}
	enabled := file != "" && file != "disabled" && file != "indirect" || active == "activating"
	faults, err := u.Judge(h.Files, enabled)
	if err != nil {
		return s, err
	}
	if h.Live() {
		if faults, err = addSystemd(ctx, h, name, faults, active, file); err != nil {
			return s, err
		}
	}
	if early, gated := u.BeforeGate(h.Files); gated && early != nil {
		faults = append(faults, service.Fault{At: early[0].Entry.At(), Text: early[0].Entry.Key + "=" + early[0].Entry.Value,
			What: early[0].Entry.At() + " " + early[0].What + " before the gate decides", Remedy: host.GateFirst(name, early[0])})
	}
	if len(faults) == 0 {
		return s, nil
	}
	slices.SortStableFunc(faults, func(a, b service.Fault) int { // the certain ones first
		switch {
		case a.Doubt == b.Doubt:
			return 0
		case b.Doubt:
			return -1
		}
		return 1
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

// addSystemd compares the faults with what the running systemd reports.
func addSystemd(ctx context.Context, h *host.Host, name string, faults []service.Fault, active, file string) ([]service.Fault, error) {
	loaded, err := h.Units.Loaded(ctx, name)
	if err != nil {
		return nil, err
	}
	faults = slices.DeleteFunc(faults, func(f service.Fault) bool { // systemd itself has judged these
		return f.Load && loaded.State == "loaded" && !loaded.Changed
	})
	running := active == "active" || active == "reloading"
	for i := range faults { // a unit that runs was started by some program, and its conditions were met
		faults[i].Doubt = faults[i].Doubt || running && faults[i].Enable
	}
	load := slices.ContainsFunc(faults, func(f service.Fault) bool { return f.Load })
	switch {
	case !load && slices.Contains([]string{"bad-setting", "error", "masked"}, loaded.State):
		faults = append(faults, service.Fault{At: "systemctl show " + name, Text: "LoadState=" + loaded.State + " " + loaded.Error,
			What: "systemd cannot load " + name + ": " + loaded.State, Doubt: file == "masked-runtime",
			Remedy: "run `systemd-analyze verify " + name + "`, and correct the line that it names"})
	case loaded.State == "loaded" && loaded.Changed:
		faults = append(faults, service.Fault{At: "systemctl show " + name, Text: "NeedDaemonReload=yes", Doubt: true,
			What: "systemd has not loaded the changed files of " + name, Remedy: "run `systemctl daemon-reload`"})
	}
	return faults, nil
}
