package checks_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
)

func TestHoldOpensByItself(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{}}
	m.Sysctl("kernel/panic", "0")
	p := checkstest.Load(t, `
		sysctl "kernel.panic" { value = 10 }
		gate {
		  interval = "100ms"
		  repair   = false
		}`)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	attempts := 0
	r := checks.Until(ctx, m.Host(), p.Gate, catalog.For(p, checks.Boot), func(r checks.Report) bool {
		if attempts++; attempts == 2 {
			m.Sysctl("kernel/panic", "10")
		}
		return true
	})
	if attempts != 3 || r.Verdict() != checks.Pass {
		t.Errorf("held for %d attempts, then %v", attempts, r.Verdict())
	}
	m.Sysctl("kernel/panic", "0")
	p.Gate.Repair = true
	attempts = 0
	r = checks.Until(ctx, m.Host(), p.Gate, catalog.For(p, checks.Boot), func(checks.Report) bool { attempts++; return true })
	if attempts != 1 || !r.Results[0].Fixed {
		t.Errorf("with repair: %d attempts, fixed %t", attempts, r.Results[0].Fixed)
	}
	m.Refuse = map[string]error{"/proc/sys/kernel/panic": syscall.EPERM}
	m.Sysctl("kernel/panic", "0")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if r := checks.Until(ended, m.Host(), p.Gate, catalog.For(p, checks.Boot), func(checks.Report) bool { return true }); r.Verdict() != checks.Fail {
		t.Errorf("a budget of nothing still makes one whole attempt: %v", r.Verdict())
	}
	attempts = 0
	if r := checks.Until(t.Context(), m.Host(), p.Gate, catalog.For(p, checks.Boot), func(checks.Report) bool { attempts++; return attempts < 2 }); attempts != 2 || r.Verdict() != checks.Fail {
		t.Errorf("told to end after two attempts: %d, %v", attempts, r.Verdict())
	}
}

// TestBootIsTheGates: what only warns cannot hold the gate, and costs no start.
func TestBootIsTheGates(t *testing.T) {
	names := func(text string, stage checks.Stage) string {
		var all []string
		for _, c := range catalog.For(checkstest.Load(t, text), stage) {
			all = append(all, c.Name())
		}
		return strings.Join(all, " ")
	}
	both := `check "swap" {}
		check "nodeport.overlap" {}`
	checkstest.Equal(t, "at boot", "swap", names(both, checks.Boot))
	checkstest.Equal(t, "at run", "swap nodeport.overlap", names(both, checks.Run))
	checkstest.Equal(t, "asked to block", "nodeport.overlap", names(`check "nodeport.overlap" { severity = "block" }`, checks.Boot))
}
