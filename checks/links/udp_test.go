package links_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
)

// TestSecondReadIsBounded checks that a context that ends between two reads gives the verdict unknown.
func TestSecondReadIsBounded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	m := &hosttest.Machine{Files: map[string]string{"/proc/net/snmp": "Udp: InCsumErrors\nUdp: 3\n"}}
	r := checkstest.On(ctx, t, m.Host(), checks.Run, "udp.checksum-errors", "")
	assert.True(t, r.Verdict == verdict.Unknown && errors.Is(r.Err, context.DeadlineExceeded), "%v, %v", r.Verdict, r.Err)
}
