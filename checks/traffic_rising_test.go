package checks_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// risingStats is links whose allowance counter is one higher at every read.
type risingStats struct {
	host.Links
	reads uint64
}

func (r *risingStats) Stats(ctx context.Context, link string) (map[string]uint64, error) {
	stats, err := r.Links.Stats(ctx, link)
	if err != nil {
		return nil, err
	}
	answer := map[string]uint64{}
	for name, n := range stats {
		if n > 0 {
			n += r.reads
		}
		answer[name] = n
	}
	r.reads++
	return answer, nil
}

// secondRead is files of which one reads differently from the second time on.
type secondRead struct {
	host.Files
	name, then string
	read       bool
}

func (s *secondRead) ReadFile(name string) ([]byte, error) {
	if name == s.name && s.read {
		return []byte(s.then), nil
	}
	s.read = s.read || name == s.name
	return s.Files.ReadFile(name)
}

// TestSecondReadIsBounded: a context that ends between two reads is unknown, not none.
func TestSecondReadIsBounded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	m := &hosttest.Machine{Files: map[string]string{"/proc/net/snmp": "Udp: InCsumErrors\nUdp: 3\n"}}
	r := judgeOn(ctx, t, m.Host(), checks.Run, "udp.checksum-errors", "")
	if r.Verdict != checks.Unknown || !errors.Is(r.Err, context.DeadlineExceeded) {
		t.Errorf("%v, %v", r.Verdict, r.Err)
	}
}
