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

// crashLoop: kubelet keeps exiting after the gate has passed.
func crashLoop() checks.Problem {
	return checks.Problem{
		Name: "kubelet.crash-loop", Stages: []checks.Stage{checks.Run}, Severity: policy.Block,
		Detects: "The gate passes, but systemd keeps restarting kubelet: it exits for a reason that no other check " +
			"covers.",
		Symptom: "The node never becomes Ready, or flaps; nodegate logs \"node proven\" every few seconds.",
		How: "systemd has restarted the policy's gate unit at least three times since its last manual start " +
			"(NRestarts), and the unit has not been up for two minutes. Starts that the gate held do not count: the unit's journal shows " +
			"that its main process never started. Neither do starts before the last change of the unit's file or drop-ins, for example before the " +
			"gate was installed. The check reports the last exit status and the last error in that journal.",
		Remedy:   "read kubelet's last messages: run `journalctl -b -u kubelet _TRANSPORT=stdout | tail`",
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
	s := checks.Passing("no restart loop")
	c, err := h.Units.Crashes(ctx, p.Gate.Unit)
	stopped := c.Active == "inactive" || c.Active == "deactivating"
	if err != nil || c.Restarts < loopRestarts || stopped || c.Active == "active" && now.Sub(c.Since).Abs() >= stableTime {
		return s, err
	}
	// NRestarts also counts starts that a control process ended (service_enter_restart() in systemd's
	// src/core/service.c). Other checks report why the gate holds.
	if ends := c.Restarts - c.Held - c.Earlier; ends < loopRestarts {
		text := fmt.Sprintf("%s, restarted %d times; %s", c.Active, c.Restarts, describeHeldStarts(ends))
		if c.Earlier > 0 {
			text = fmt.Sprintf("%s, restarted %d times, %d of them before its unit file or a drop-in changed", c.Active, c.Restarts, c.Earlier)
		}
		s.Evidence = []checks.Evidence{checks.Seen(p.Gate.Unit, text)}
		return s, nil
	}
	exit := cmp.Or(c.Exit, "unknown exit status")
	s.Evidence = []checks.Evidence{checks.Seen(p.Gate.Unit, fmt.Sprintf("%s, restarted %d times, last %s", c.Active, c.Restarts, exit))}
	if c.Line != "" {
		s.Evidence = append(s.Evidence, checks.Seen("journalctl -u "+p.Gate.Unit, c.Line))
	}
	s.Differs("keeps restarting: "+exit, "")
	return s, nil
}

// describeHeldStarts describes how many of the last starts were held; ends starts were not.
func describeHeldStarts(ends int) string {
	const held = "the gate or another ExecStartPre= held all recent starts"
	switch ends {
	case 0:
		return held
	case 1:
		return held + " but one"
	}
	return fmt.Sprintf("%s but %d", held, ends)
}
