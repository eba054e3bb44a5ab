package kubelet

import (
	"context"
	"time"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// clockTime is what a machine has to set its clock after it booted.
const clockTime = 10 * time.Minute

// clockUnsynchronised: certificates and tokens are judged by this machine's clock.
func clockUnsynchronised() checks.Problem {
	return checks.Problem{
		Name: "clock.unsynchronised", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "Nothing keeps the clock of this machine right.",
		Symptom: "\"x509: certificate has expired or is not yet valid\", tokens that are refused, Leases that other nodes think old.",
		How: "The kernel's clock has been unsynchronised (STA_UNSYNC, as `timedatectl` shows it, with an error that nobody bounds) for 10 " +
			"minutes and more since the boot. A hypervisor's agent that sets the clock itself may not say so.",
		Remedy:   "start chronyd or systemd-timesyncd, and see whether its servers answer: timedatectl; chronyc tracking",
		TradeOff: "A clock that is far off jumps once: timers of programs fire early.",
		Ref:      "https://man7.org/linux/man-pages/man2/adjtimex.2.html",
		Inspect:  inspectClock,
	}
}

func inspectClock(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("a clock that follows another")
	up, err := h.Uptime()
	if err != nil {
		return s, err
	}
	if up < clockTime {
		s.Skip = "the machine has been up for less than 10 minutes"
		return s, nil
	}
	synchronised, err := h.Kernel.Synchronised()
	if err == nil && !synchronised {
		s.Evidence = []checks.Evidence{checks.Seen("adjtimex", "STA_UNSYNC, "+up.Truncate(time.Minute).String()+" after the boot")}
		s.Differs("one that follows none", "")
	}
	return s, err
}
