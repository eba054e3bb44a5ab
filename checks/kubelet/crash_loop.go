package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// crashLoop: kubelet exits again and again after the gate has passed.
func crashLoop() checks.Problem {
	return checks.Problem{
		Name: "kubelet.crash-loop", Stages: []checks.Stage{checks.Run}, Severity: policy.Block,
		Detects: "systemd starts kubelet again and again, though the gate passes: it exits for a reason that no other check knows.",
		Symptom: "The node never becomes Ready, or flaps; nodegate says \"node proven\" every few seconds.",
		How: "systemd has restarted the policy's gate unit three times since somebody started it (NRestarts), and it has not been up for two " +
			"minutes since. A start that the gate held is none of these: by the unit's journal its own process had not begun. The last exit " +
			"and the last error in that journal are shown.",
		Remedy:   "see what kubelet says at its end: journalctl -b -u kubelet _TRANSPORT=stdout | tail",
		TradeOff: "",
		Ref:      "https://kubernetes.io/docs/tasks/debug/debug-cluster/#looking-at-logs",
		Inspect: func(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
			return inspectCrashLoop(ctx, h, p, time.Now())
		},
	}
}

const (
	loopRestarts = 3
	stableTime   = 2 * time.Minute
)

func inspectCrashLoop(ctx context.Context, h *host.Host, p *policy.Policy, now time.Time) (checks.State, error) {
	s := checks.Passing("up, or started by hand")
	c, err := h.Units.Crashes(ctx, p.Gate.Unit)
	stopped := c.Active == "inactive" || c.Active == "deactivating"
	if err != nil || c.Restarts < loopRestarts || stopped || c.Active == "active" && now.Sub(c.Since).Abs() >= stableTime {
		return s, err
	}
	// NRestarts counts the starts that a control process ended, too (service_enter_restart() in systemd's src/core/service.c). Why the gate
	// holds is what other checks say.
	if ends := c.Restarts - c.Held; ends < loopRestarts {
		s.Evidence = []checks.Evidence{checks.Seen(p.Gate.Unit, fmt.Sprintf("%s, restarted %d times; %s", c.Active, c.Restarts, heldBut(ends)))}
		return s, nil
	}
	exit := cmp.Or(c.Exit, "an end that is not known")
	s.Evidence = []checks.Evidence{checks.Seen(p.Gate.Unit, fmt.Sprintf("%s, restarted %d times, last %s", c.Active, c.Restarts, exit))}
	if c.Line != "" {
		s.Evidence = append(s.Evidence, checks.Seen("journalctl -u "+p.Gate.Unit, c.Line))
	}
	s.Differs("restarts again and again: "+exit, "")
	return s, nil
}

// heldBut says how many of the last starts were held, where a few were not.
func heldBut(ends int) string {
	const held = "the gate, or what else precedes it, held each of its last starts"
	switch ends {
	case 0:
		return held
	case 1:
		return held + " but one"
	}
	return fmt.Sprintf("%s but %d", held, ends)
}
