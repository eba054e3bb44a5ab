package datapath

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
)

func TestServiceSummary(t *testing.T) {
	endpoint := func(i int) netip.AddrPort { return addrPort(fmt.Sprintf("203.0.113.%d:80", i)) }
	target := addrPort("198.51.100.10:80")
	many := func(n int, a attempt) []attempt {
		all := make([]attempt, n)
		for i := range all {
			all[i] = a
		}
		return all
	}
	var stale []attempt
	for i := range 1000 {
		a := attempt{endpoint: endpoint(1 + i%65), took: time.Millisecond}
		if i < 257 {
			a = attempt{endpoint: endpoint(1 + i%4), failed: "timeout"}
		}
		stale = append(stale, a)
	}
	for _, c := range []struct {
		attempts []attempt
		want     string
	}{
		{nil, "no attempt was made"},
		{stale, "257 of 1000 failed (25.7 %, 95 % confidence 23.1 to 28.5 %), all sent to 4 of 65 endpoints: 203.0.113.1:80, 203.0.113.2:80, " +
			"203.0.113.3:80, 203.0.113.4:80"},
		{many(100, attempt{endpoint: endpoint(1)}),
			"all 100 connections succeeded (with 95 % confidence at most 3.7 % fail); 1 endpoint answered"},
		{many(2, attempt{endpoint: target}), "all 2 connections succeeded (with 95 % confidence at most 65.8 % fail); the address itself " +
			"answered: conntrack has no translation"},
		{many(2, attempt{endpoint: target, failed: "refused"}),
			"2 of 2 failed (100.0 %, 95 % confidence 34.2 to 100.0 %), all sent to the address itself: conntrack has no translation"},
		{many(1, attempt{failed: "timeout", unknown: errors.New("no privilege")}),
			"1 of 1 failed (100.0 %, 95 % confidence 20.7 to 100.0 %), sent to unknown endpoints: no privilege"},
		{append(many(3, attempt{failed: "timeout", endpoint: endpoint(1)}), attempt{failed: "timeout", unknown: errors.New("no privilege")}),
			"4 of 4 failed (100.0 %, 95 % confidence 51.0 to 100.0 %), sent to 1 of 1 endpoints: 203.0.113.1:80; 1 of them to unknown endpoints: no " +
				"privilege"},
	} {
		r := ServiceResult{Target: target}
		r.countAttempts(c.attempts)
		assert.Equal(t, r.Summary(), c.want)
		var text bytes.Buffer
		must(t, r.Render(&text))
		data, err := json.Marshal(r)
		must(t, err)
		if strings.Contains(string(data), "NaN") || strings.Contains(text.String(), "%!") {
			t.Errorf("%s\n%s", data, &text)
		}
	}
}

// TestWilson: for 0 of n failures, the formula gives z²/(n+z²) as the upper end.
func TestWilson(t *testing.T) {
	for _, c := range []struct {
		failed, n int
		low, high float64
	}{{0, 10, 0, 0.2775328}, {10, 10, 0.7224672, 1}, {5, 10, 0.2365931, 0.7634069}, {0, 0, 0, 1}} {
		r := wilson(c.failed, c.n)
		if math.Abs(r.Low-c.low) > 1e-6 || math.Abs(r.High-c.high) > 1e-6 {
			t.Errorf("%d of %d: %+v", c.failed, c.n, r)
		}
	}
}

func TestDistribution(t *testing.T) {
	var took []time.Duration
	for i := range 100 {
		took = append(took, time.Duration(100-i)*time.Millisecond)
	}
	l := distribution(took)
	if l.Min != Millis(time.Millisecond) || l.P50 != Millis(50*time.Millisecond) || l.P99 != Millis(99*time.Millisecond) ||
		l.Max != Millis(100*time.Millisecond) {
		t.Errorf("%+v", l)
	}
	if l := distribution(nil); l.Max != 0 {
		t.Errorf("%+v", l)
	}
}

func TestQueryAnswered(t *testing.T) {
	q, err := newQuery()
	must(t, err)
	answer := bytes.Clone(q.packet)
	answer[2] |= 0x80
	answer[3] = 3 // NXDOMAIN
	if rcode, ok := q.parseAnswer(answer); !ok || rcode != "NameError" {
		t.Error(rcode, ok)
	}
	other := bytes.Clone(answer)
	other[0]++
	for _, datagram := range [][]byte{nil, q.packet, other, answer[:11], []byte("garbage of some length")} {
		if rcode, ok := q.parseAnswer(datagram); ok {
			t.Errorf("%x: %s", datagram, rcode)
		}
	}
}
