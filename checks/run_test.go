package checks_test

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
)

func TestUnknownNeverPasses(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{}, Refuse: map[string]error{"r /proc/sys/kernel/panic": syscall.EIO}}
	p := checkstest.Load(t, `sysctl "kernel.panic" { value = 10 }`)
	r := checks.Inspect(t.Context(), m.Host(), checks.Boot, catalog.For(p, checks.Boot))
	if r.Verdict() != checks.Unknown || !errors.Is(r.Results[0].Err, syscall.EIO) {
		t.Errorf("an unreadable parameter: %v, %v", r.Verdict(), r.Results[0].Err)
	}
	p = checkstest.Load(t, `sysctl "kernel.panic" {
		value = 10
		severity = "warn"
	}`)
	r = checks.Inspect(t.Context(), m.Host(), checks.Boot, catalog.For(p, checks.Boot))
	if r.Verdict() != checks.Pass || r.Results[0].Verdict != checks.Unknown {
		t.Errorf("an unreadable parameter that only warns: report %v, result %v", r.Verdict(), r.Results[0].Verdict)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	m = &hosttest.Machine{Files: map[string]string{}}
	m.Sysctl("kernel/panic", "10")
	r = checks.Inspect(ended, m.Host(), checks.Boot, catalog.For(checkstest.Load(t, `sysctl "kernel.panic" { value = 10 }`), checks.Boot))
	if r.Verdict() != checks.Unknown {
		t.Errorf("a check that was not run: %v", r.Verdict())
	}
}
