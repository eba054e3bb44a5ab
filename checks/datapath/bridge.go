package datapath

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"time"

	"nodegate/internal/host/netns"
)

// BridgeOptions configures Bridge.
type BridgeOptions struct {
	// Timeout bounds the wait for the reply; 0 means one second. Set-up is bounded by ctx and by ten more
	// seconds.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// BridgeResult is the result of a bridge probe.
type BridgeResult struct {
	Pass     bool           `json:"pass"`               // the reply came back translated
	Lost     Loss           `json:"lost,omitempty"`     // the lost packet, if not Pass
	Summary  string         `json:"summary"`            // the result in one sentence
	Remedy   string         `json:"remedy,omitempty"`   // what to do about a failure
	Service  netip.AddrPort `json:"service"`            // the Service address, ip:port
	Endpoint netip.AddrPort `json:"endpoint"`           // the endpoint's address
	Client   netip.AddrPort `json:"client"`             // the client's address
	Observed Observed       `json:"observed"`           // counters and settings
	Warnings []string       `json:"warnings,omitempty"` // what may explain a difference from the node itself
	Duration Millis         `json:"durationMs"`         // of the whole probe
}

const defaultTimeout = time.Second

// Bridge connects a client to a Service address whose endpoint is on the same bridge, and proves that
// the reply comes back translated. If the data path loses packets, it returns a result that does not
// pass. It returns an error only if it could not determine the result.
//
// Bridge works in a copy of the host's rules and settings: it changes nothing, and all of it ends with the process. It needs
// CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_RAW. The kernel may load the modules of bridges, veths and nf_tables, but not br_netfilter.
func Bridge(ctx context.Context, o BridgeOptions) (BridgeResult, error) {
	start := time.Now()
	if o.Timeout < 0 {
		return BridgeResult{}, fmt.Errorf("probing a bridge: timeout must not be negative, is %s", o.Timeout)
	}
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	ctx, cancel := context.WithTimeout(ctx, o.Timeout+10*time.Second)
	defer cancel()
	r, err := probeBridge(ctx, o)
	r.Duration = Millis(time.Since(start))
	if err != nil {
		return r, fmt.Errorf("probing a bridge: %w", err)
	}
	return r, nil
}

func probeBridge(ctx context.Context, o BridgeOptions) (BridgeResult, error) {
	router, err := netns.Current(ctx)
	if err != nil {
		return BridgeResult{}, err
	}
	defer router.Close()
	return probeIn(ctx, router, o)
}
