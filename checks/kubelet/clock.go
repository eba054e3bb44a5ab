package kubelet

import (
	"context"
	"time"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// clockTime is the time a machine has to synchronise its clock after boot.
const clockTime = 10 * time.Minute

// clockUnsynchronised: this machine validates certificates and tokens by its own clock.
func clockUnsynchronised() checks.Problem {
	return checks.Problem{
		Name: "clock.unsynchronised", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "No program synchronises this machine's clock.",
		Symptom: "\"x509: certificate has expired or is not yet valid\"; rejected tokens; Leases that other nodes consider expired.",
		How: "The machine booted at least 10 minutes ago, and the kernel still flags its clock as unsynchronised " +
			"(STA_UNSYNC, as `timedatectl` shows it). A hypervisor's agent that sets the clock directly may leave this flag set.",
		Remedy:   "start chronyd or systemd-timesyncd; run `timedatectl` or `chronyc tracking` to see whether its servers answer",
		TradeOff: "If the clock is far off it jumps once, and timers of programs fire early.",
		Ref:      "https://man7.org/linux/man-pages/man2/adjtimex.2.html",
		Inspect:  inspectClock,
	}
}

func inspectClock(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("a synchronised clock")
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
		s.Differs("an unsynchronised clock", "")
	}
	return s, err
}
