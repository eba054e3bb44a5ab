package image

import (
	"context"
	"fmt"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/boot"
	"nodegate/internal/sorted"
	"nodegate/policy"
)

// bootOrder: systemd breaks an ordering cycle by not starting one of its units.
func bootOrder() checks.Problem {
	return checks.Problem{
		Name: "image.boot-order", Stages: []checks.Stage{checks.Image}, Severity: policy.Block,
		Detects: "Units of the image are ordered in a cycle, so systemd does not start one of them, and not always the same one.",
		Symptom: "At some boots a unit or a mount is missing: \"Job ... deleted to break ordering cycle\" in the journal.",
		How: "This machine's systemd computes the image's boot in its test mode, without privileges, from a copy of the units and of the " +
			"mounts in /etc/fstab. Nothing of the image runs. A cycle without units of nodegate and without the gate's unit is a warning. " +
			"Unknown, as a warning, if systemd is not installed or cannot run here.",
		Remedy:  "remove After= or Before= from one of the named units with a drop-in",
		Ref:     "https://github.com/awslabs/amazon-eks-ami/issues/2703",
		Inspect: inspectBootOrder,
	}
}

func inspectBootOrder(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	s := checks.Passing("no ordering cycle")
	b, err := h.Units.Boot(ctx, p.Gate.Unit)
	cycles := b.Cycles
	switch {
	case ctx.Err() != nil:
		return s, ctx.Err()
	case err != nil: // the fault is this environment's, not the image's
		s.Minor, s.Remedy = true, "install systemd in the image, and here to run it, or leave the check out with `--skip image.boot-order`"
		return s, fmt.Errorf("no systemd can be asked about the boot: %w", err)
	case len(cycles) == 0:
		return s, nil
	}
	holdsUp := func(c boot.Cycle) bool { return c.Has("nodegate-") || c.Has(p.Gate.Unit) }
	sorted.By(cycles, func(a, b boot.Cycle) int {
		switch {
		case holdsUp(a) == holdsUp(b):
			return 0
		case holdsUp(a):
			return -1
		}
		return 1
	})
	s.Minor = !holdsUp(cycles[0])
	for _, c := range cycles {
		s.Evidence = append(s.Evidence, checks.Seen("systemd --test", c.String()))
	}
	s.Differs(fmt.Sprintf("%s: %s", count(len(cycles)), cycles[0]), remedyFor(cycles[0]))
	return s, nil
}

func count(cycles int) string {
	if cycles == 1 {
		return "an ordering cycle"
	}
	return fmt.Sprintf("%d ordering cycles, the first", cycles)
}

// remedyFor names the most likely mistake: a mount of fstab that waits for a late unit.
func remedyFor(c boot.Cycle) string {
	for _, unit := range c {
		if strings.HasSuffix(unit, ".mount") {
			return "remove x-systemd.requires=, x-systemd.after= or _netdev from the line of " + unit + " in /etc/fstab, or remove After= or " +
				"Before= from another named unit with a drop-in"
		}
	}
	return "remove After= or Before= from one of the named units with a drop-in"
}
