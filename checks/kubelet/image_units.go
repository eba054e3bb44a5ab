package kubelet

import (
	"context"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// These are the paths that `nodegate install` writes, as in package units. A check
// only looks, so it must not depend on the package that installs.
const (
	dropInDir     = "/etc/systemd/system"
	applyUnitName = "nodegate-apply.service"
)

// installation is where one way of installing puts the binary and its units.
type installation struct{ binDir, unitDir string }

func installations() [2]installation {
	return [2]installation{
		{"/usr/local/bin", "/etc/systemd/system"}, // nodegate install without a package
		{"/usr/bin", "/usr/lib/systemd/system"},   // the Debian or RPM package, then nodegate install
	}
}

// imageUnits: an image without the gate starts kubelet whatever the node is.
func imageUnits() checks.Problem {
	return checks.Problem{
		Name: "image.units", Stages: []checks.Stage{checks.Image}, Severity: policy.Block,
		Detects: "nodegate is not installed in the image, or its unit is not enabled, or kubelet is not held, or does not exist.",
		Symptom: "Nodes made from the image start kubelet without being checked; they join the cluster and lose packets.",
		How: "The binary, nodegate-apply.service, the link that enables it, the policy's gate unit and its drop-in are looked for " +
			"below the root, and drop-ins after it that take the gate out again.",
		Remedy:   "run: nodegate install --root TREE, as the last step that writes to the image",
		TradeOff: "",
		Ref:      "https://www.freedesktop.org/software/systemd/man/latest/systemd.unit.html",
		Inspect:  inspectImageUnits,
	}
}

func inspectImageUnits(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	s := checks.Passing("installed and enabled")
	var missing []string
	look := func(name, mustSay, what string) error {
		text, found, err := h.ReadIfAny(name)
		switch {
		case err != nil:
			return err
		case !found:
			missing = append(missing, "no "+what)
			s.Evidence = append(s.Evidence, checks.Seen(name, "missing"))
		case !strings.Contains("\n"+string(text), "\n"+mustSay):
			missing = append(missing, what+" does not run the gate")
			s.Evidence = append(s.Evidence, checks.Seen(name, "no line "+mustSay))
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
	if err := look(in.unitDir+"/"+applyUnitName, "ExecStart="+binary+" apply", applyUnitName); err != nil {
		return s, err
	}
	enabled, said, err := h.UnitOn(ctx, applyUnitName)
	if err != nil {
		return s, err
	}
	if s.Evidence = append(s.Evidence, said); !enabled {
		missing = append(missing, applyUnitName+" is "+said.Text)
	}
	if err := look(dropInDir+"/"+p.Gate.Unit+".d/10-nodegate.conf", "ExecStartPre=+"+binary+" gate", "drop-in of "+p.Gate.Unit); err != nil {
		return s, err
	}
	undone, err := h.GateUndone(p.Gate.Unit)
	if err != nil {
		return s, err
	}
	lack, likely, err := h.LacksUnit(p.Gate.Unit)
	if err != nil {
		return s, err
	}
	remedy := "run: nodegate install --root " + h.Root
	if undone != "" {
		s.Evidence = append(s.Evidence, checks.Seen(undone, "ExecStartPre="))
		if missing == nil {
			remedy = "take the line out of " + undone + ", or name the file so that it sorts before ours"
		}
		missing = append(missing, undone+" takes the gate out of "+p.Gate.Unit)
	}
	if lack && !p.Gate.MayLack {
		s.Evidence = append(s.Evidence, checks.Seen(p.Gate.Unit, "no such unit; "+host.LikeKubelet(likely)))
		if missing == nil {
			remedy = "name kubelet's unit in the policy's gate block, or write unit_absent = \"allow\" there if it is installed later"
		}
		missing = append(missing, "no unit "+p.Gate.Unit)
	}
	if missing != nil {
		s.Differs(strings.Join(missing, ", "), remedy)
	}
	return s, nil
}

// findInstallation returns the installation that has a binary. Without any it
// returns the paths of `nodegate install`, and false.
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
