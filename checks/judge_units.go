package checks

import (
	"context"
	"slices"
	"strings"

	"nodegate/host"
	"nodegate/policy"
)

// Where `nodegate install` puts things. Package units says the same; it installs,
// and a check that only looks must not depend on that.
const (
	installedBinary = "/usr/local/bin/nodegate"
	installedUnits  = "/etc/systemd/system"
	applyUnitName   = "nodegate-apply.service"
)

// imageUnits: an image without the gate starts kubelet whatever the node is.
func imageUnits() Judgement {
	return Judgement{
		Name: "image.units", Stages: []Stage{Image}, Severity: policy.Block,
		Detects:  "nodegate is not installed in the image, or its unit is not enabled, or kubelet is not held.",
		Symptom:  "Nodes made from the image start kubelet without being checked; they join the cluster and lose packets.",
		How:      "The binary, nodegate-apply.service, the link that enables it and the drop-in of the policy's gate unit are looked for below the root.",
		Remedy:   "run: nodegate install --root TREE, as the last step that writes to the image",
		TradeOff: "",
		Ref:      "https://www.freedesktop.org/software/systemd/man/latest/systemd.unit.html",
		Inspect:  inspectImageUnits,
	}
}

func inspectImageUnits(ctx context.Context, h *host.Host, p *policy.Policy) (State, error) {
	s := State{Want: "installed and enabled", Got: "installed and enabled", Holds: true}
	var missing []string
	look := func(name, mustSay, what string) error {
		text, found, err := readIfAny(h, name)
		switch {
		case err != nil:
			return err
		case !found:
			missing = append(missing, "no "+what)
			s.Evidence = append(s.Evidence, Evidence{name, "missing"})
		case !strings.Contains(string(text), mustSay):
			missing = append(missing, what+" does not run the gate")
			s.Evidence = append(s.Evidence, Evidence{name, "no line " + mustSay})
		default:
			s.Evidence = append(s.Evidence, Evidence{name, "present"})
		}
		return nil
	}
	if names, err := readDirIfAny(h, "/usr/local/bin"); err != nil {
		return s, err
	} else if !slices.Contains(names, "nodegate") {
		missing = append(missing, "no binary")
		s.Evidence = append(s.Evidence, Evidence{installedBinary, "missing"})
	}
	if err := look(installedUnits+"/"+applyUnitName, "ExecStart="+installedBinary+" apply", applyUnitName); err != nil {
		return s, err
	}
	enabled, said, err := unitOn(ctx, h, applyUnitName)
	if err != nil {
		return s, err
	}
	if s.Evidence = append(s.Evidence, said); !enabled {
		missing = append(missing, applyUnitName+" is "+said.Text)
	}
	if err := look(installedUnits+"/"+p.Gate.Unit+".d/10-nodegate.conf", "ExecStartPre=+"+installedBinary+" gate", "drop-in of "+p.Gate.Unit); err != nil {
		return s, err
	}
	if missing != nil {
		s.Holds, s.Got = false, strings.Join(missing, ", ")
		s.Remedy = "run: nodegate install --root " + h.Root
	}
	return s, nil
}
