package datapath

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"nodegate/internal/sorted"
)

// ServiceResult is the result of a Service probe.
type ServiceResult struct {
	Address  string         `json:"address"`           // as given
	Target   netip.AddrPort `json:"target"`            // the resolved address, ip:port
	Source   netip.Addr     `json:"source"`            // the local address of the attempts
	OfNode   bool           `json:"ofNode"`            // the attempts were made in the node's network namespace, not in a Pod's
	Proto    Proto          `json:"proto"`             // tcp, udp or dns
	N        int            `json:"n"`                 // requested attempts
	Attempts int            `json:"attempts"`          // attempts made
	Failed   int            `json:"failed"`            // attempts that failed
	Rate     Rate           `json:"rate"`              // of failures
	Reasons  map[string]int `json:"reasons,omitempty"` // failures: timeout, refused, ...
	Answers  map[string]int `json:"answers,omitempty"` // DNS answers by code
	Latency  Latency        `json:"latency"`           // of successful attempts
	// Endpoints lists the endpoints of the attempts, the failing ones first. An endpoint equal to Target means
	// that conntrack has no translation: the address is not translated, or IPVS translates it without
	// net.ipv4.vs.conntrack.
	Endpoints []Endpoint `json:"endpoints"`
	Unknown   Unknown    `json:"unknown"`    // attempts without an entry in conntrack
	Duration  Millis     `json:"durationMs"` // of the whole probe
}

// Rate is the failing fraction of the attempts, and Wilson's 95 % interval for the true failure rate. All
// values are from 0 to 1.
type Rate struct {
	Fraction float64 `json:"fraction"` // of attempts that failed, 0 to 1
	Low      float64 `json:"low"`      // lower end of the 95 % interval
	High     float64 `json:"high"`     // upper end
}

// Latency is the distribution over the successful attempts: for TCP until connected, for DNS until
// answered. A latency of one second means that the first packet was lost and repeated.
type Latency struct {
	Min Millis `json:"minMs"` // of the successful attempts
	P50 Millis `json:"p50Ms"` // median
	P90 Millis `json:"p90Ms"` // 90th percentile
	P99 Millis `json:"p99Ms"` // 99th percentile
	Max Millis `json:"maxMs"` // slowest
}

// Endpoint is an address to which attempts were sent.
type Endpoint struct {
	Address  netip.AddrPort `json:"address"`  // as conntrack has it, ip:port
	Attempts int            `json:"attempts"` // attempts that were sent here
	Failed   int            `json:"failed"`   // attempts that failed
}

// Unknown counts the attempts with an unknown endpoint, and gives the reason.
type Unknown struct {
	Attempts int    `json:"attempts"`      // attempts whose endpoint is unknown
	Failed   int    `json:"failed"`        // of these, failures
	Why      string `json:"why,omitempty"` // the reason
}

// Failing returns the endpoints of failed attempts, to compare them with the expected endpoints.
func (r ServiceResult) Failing() []Endpoint {
	n := slices.IndexFunc(r.Endpoints, func(e Endpoint) bool { return e.Failed == 0 })
	if n < 0 {
		n = len(r.Endpoints)
	}
	return r.Endpoints[:n]
}

func (r *ServiceResult) countAttempts(attempts []attempt) {
	r.Attempts = len(attempts)
	r.Reasons, r.Answers = map[string]int{}, map[string]int{}
	at := map[netip.AddrPort]*Endpoint{}
	var took []time.Duration
	for _, a := range attempts {
		failed := 0
		if a.failed != "" {
			failed = 1
			r.Reasons[a.failed]++
		} else {
			took = append(took, a.took)
		}
		if a.rcode != "" {
			r.Answers[a.rcode]++
		}
		r.Failed += failed
		if !a.endpoint.IsValid() {
			r.Unknown.Attempts++
			r.Unknown.Failed += failed
			r.Unknown.Why = "conntrack lacks the flow: it is not tracked, or eBPF translated it earlier"
			if a.unknown != nil {
				r.Unknown.Why = a.unknown.Error()
			}
			continue
		}
		e := at[a.endpoint]
		if e == nil {
			e = &Endpoint{Address: a.endpoint}
			at[a.endpoint] = e
		}
		e.Attempts++
		e.Failed += failed
	}
	r.Endpoints = make([]Endpoint, 0, len(at))
	for _, e := range at {
		r.Endpoints = append(r.Endpoints, *e)
	}
	sorted.By(r.Endpoints, func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(b.Failed, a.Failed), a.Address.Compare(b.Address))
	})
	r.Rate = wilson(r.Failed, r.Attempts)
	r.Latency = distribution(took)
}

// wilson returns E. B. Wilson's 95 % score interval, which is also valid near 0 and 1.
func wilson(failed, n int) Rate {
	if n == 0 {
		return Rate{High: 1} // no information
	}
	const z = 1.959963984540054
	p, m := float64(failed)/float64(n), float64(n)
	middle := p + z*z/(2*m)
	spread := z * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	r := Rate{Fraction: p, Low: (middle - spread) / (1 + z*z/m), High: (middle + spread) / (1 + z*z/m)}
	// Set the ends exactly: rounding would leave 1e-17.
	if failed == 0 {
		r.Low = 0
	}
	if failed == n {
		r.High = 1
	}
	return r
}

// distribution computes percentiles by the nearest rank.
func distribution(took []time.Duration) (l Latency) {
	if len(took) == 0 {
		return l
	}
	slices.Sort(took)
	rank := func(percent int) Millis { return Millis(took[(len(took)*percent+99)/100-1]) }
	return Latency{Min: Millis(took[0]), P50: rank(50), P90: rank(90), P99: rank(99), Max: Millis(took[len(took)-1])}
}
