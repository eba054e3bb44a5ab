package kubelet

import (
	"context"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// These are the paths that `nodegate install` writes, repeated from package units: a check only
// reads, so it must not depend on the package that installs.
const (
	dropInDir     = "/etc/systemd/system"
	applyUnitName = "nodegate-apply.service"
)

// installation has the directories of the binary and its units for one way of installing.
type installation struct{ binDir, unitDir string }

func installations() [2]installation {
	return [2]installation{
		{"/usr/local/bin", "/etc/systemd/system"}, // nodegate install without a package
		{"/usr/bin", "/usr/lib/systemd/system"},   // the Debian or RPM package, then nodegate install
	}
}

// imageUnits: an image without the gate starts kubelet on any node, good or bad.
func imageUnits() checks.Problem {
	return checks.Problem{
		Name: "image.units", Stages: []checks.Stage{checks.Image}, Severity: policy.Block,
		Detects: "nodegate is not installed in the image, its unit is not enabled, or kubelet's unit does not run the gate or does not exist.",
		Symptom: "Nodes made from the image start kubelet unchecked; they join the cluster and lose packets.",
		How: "Looks below the root for the binary, nodegate-apply.service, the link that enables it, the policy's gate " +
			"unit and its drop-in, and for later drop-ins that remove the gate again.",
		Remedy:  "run `nodegate install --root TREE` as the last step that writes to the image",
		Ref:     "https://www.freedesktop.org/software/systemd/man/latest/systemd.unit.html",
		Inspect: inspectImageUnits,
	}
}

// hasLine reports whether text has the wanted assignment. A line of shell may call the gate.
func hasLine(text, wanted string) bool {
	key, command, _ := strings.Cut(wanted, "+")
	return slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool {
		return strings.HasPrefix(line, wanted) || command != "" && strings.HasPrefix(line, key+"+/bin/sh ") && strings.Contains(line, " "+command)
	})
}

func inspectImageUnits(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	s := checks.Passing("installed and enabled")
	var missing []string
	checkFile := func(name, line, what string) error {
		text, found, err := h.ReadIfAny(name)
		switch {
		case err != nil:
			return err
		case !found:
			missing = append(missing, "no "+what)
			s.Evidence = append(s.Evidence, checks.Seen(name, "missing"))
		case !hasLine(string(text), line):
			missing = append(missing, what+" does not run the gate")
			s.Evidence = append(s.Evidence, checks.Seen(name, "no line "+line))
		default:
			s.Evidence = append(s.Evidence, checks.Seen(name, "present"))
		}
		return nil
	}
	in, found, err := findInstallation(h)
	if err != nil {
		return s, err
	}
	binary := in.binDir + "/nodegate"
	if !found {
		missing = append(missing, "no binary")
		s.Evidence = append(s.Evidence, checks.Seen(binary, "missing"))
	}
	if err := checkFile(in.unitDir+"/"+applyUnitName, "ExecStart="+binary+" apply", applyUnitName); err != nil {
		return s, err
	}
	enabled, said, err := h.UnitOn(ctx, applyUnitName)
	if err != nil {
		return s, err
	}
	if s.Evidence = append(s.Evidence, said); !enabled {
		missing = append(missing, applyUnitName+" is "+said.Text)
	}
	dropIn := dropInDir + "/" + p.Gate.Unit + ".d/10-nodegate.conf"
	if err := checkFile(dropIn, "ExecStartPre=+"+binary+" gate", "drop-in of "+p.Gate.Unit); err != nil {
		return s, err
	}
	undone, err := h.GateUndone(p.Gate.Unit)
	if err != nil {
		return s, err
	}
	early, gated, err := h.BeforeGate(p.Gate.Unit)
	if err != nil {
		return s, err
	}
	lack, likely, err := h.LacksUnit(p.Gate.Unit)
	if err != nil {
		return s, err
	}
	// Each later remedy holds only if nothing before it is missing: install comes first, and does not mend the rest.
	remedy := "run `nodegate install`"
	if undone != "" {
		s.Evidence = append(s.Evidence, checks.Seen(undone, "ExecStartPre="))
		if missing == nil {
			remedy = "remove the line from " + undone + ", or rename the file so that it sorts before 10-nodegate.conf"
		}
		missing = append(missing, undone+" removes the gate from "+p.Gate.Unit)
	}
	if gated && early != nil {
		at := early[0].Entry.At()
		s.Evidence = append(s.Evidence, checks.Seen(at, early[0].Entry.Key+"="+early[0].Entry.Value))
		if missing == nil {
			remedy = host.GateFirst(p.Gate.Unit, early[0])
		}
		missing = append(missing, at+" "+early[0].What+" before the gate decides")
	}
	if lack && !p.Gate.MayLack {
		s.Evidence = append(s.Evidence, checks.Seen(p.Gate.Unit, "no such unit; "+host.LikeKubelet(likely)))
		if missing == nil {
			remedy = "name kubelet's unit in the policy's gate block, or set unit_absent = \"allow\" there if it is installed later"
		}
		missing = append(missing, "no unit "+p.Gate.Unit)
	}
	if missing != nil {
		s.Differs(strings.Join(missing, ", "), remedy)
	}
	return s, nil
}

// findInstallation returns the installation that has a binary. If none has, it returns the paths of
// `nodegate install`, and false.
func findInstallation(h *host.Host) (installation, bool, error) {
	for _, in := range installations() {
		names, err := h.ReadDirIfAny(in.binDir)
		if err != nil {
			return in, false, err
		}
		if slices.Contains(names, "nodegate") {
			return in, true, nil
		}
	}
	return installations()[0], false, nil
}
