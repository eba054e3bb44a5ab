package datapath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"time"

	"nodegate/internal/host/netns"
)

// BridgeOptions configures Bridge. The zero value probes the host's own network namespace and settings.
type BridgeOptions struct {
	// InScratch leaves out the host's rules and settings. It needs no privilege if Child is set and user
	// namespaces are allowed.
	InScratch bool `json:"inScratch,omitempty"`
	// Timeout bounds the wait for the reply; 0 means one second. Set-up is bounded by ctx and by ten more
	// seconds.
	Timeout time.Duration `json:"timeout,omitempty"`
	// CallIPTables and Forward set net.bridge.bridge-nf-call-iptables and net.ipv4.ip_forward of the
	// scratch namespace; they require InScratch. If nil, CallIPTables keeps the default of a new namespace
	// and Forward means true.
	CallIPTables *bool `json:"callIPTables,omitempty"`
	Forward      *bool `json:"forward,omitempty"`
	// Child holds the arguments with which this program runs ChildMain, for InScratch without privilege.
	// Without them, InScratch needs CAP_SYS_ADMIN.
	Child []string `json:"-"`
}

// BridgeResult is the result of a bridge probe.
type BridgeResult struct {
	Pass     bool           `json:"pass"`               // the reply came back translated
	Lost     Loss           `json:"lost,omitempty"`     // the lost packet, if not Pass
	Summary  string         `json:"summary"`            // the result in one sentence
	Remedy   string         `json:"remedy,omitempty"`   // what to do about a failure
	Where    string         `json:"where"`              // "host", "scratch" or "user namespace"
	Service  netip.AddrPort `json:"service"`            // the Service address, ip:port
	Endpoint netip.AddrPort `json:"endpoint"`           // the endpoint's address
	Client   netip.AddrPort `json:"client"`             // the client's address
	Observed Observed       `json:"observed"`           // counters and settings
	Warnings []string       `json:"warnings,omitempty"` // what may explain a difference from the node itself
	Duration Millis         `json:"durationMs"`         // of the whole probe
}

// The values of BridgeResult.Where.
const (
	OnHost          = "host"
	InScratch       = "scratch"
	InUserNamespace = "user namespace"
)

const defaultTimeout = time.Second

// Bridge connects a client to a Service address whose endpoint is on the same bridge, and proves that
// the reply comes back translated. If the data path loses packets, it returns a result that does not
// pass. It returns an error only if it could not determine the result.
//
// Bridge works in a copy of the host's rules and settings: it changes nothing, and all of it ends with the process. It needs
// CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_RAW. The kernel may load the modules of bridges, veths and nf_tables, but not br_netfilter.
func Bridge(ctx context.Context, o BridgeOptions) (BridgeResult, error) {
	start := time.Now()
	if err := o.validate(); err != nil {
		return BridgeResult{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout()+10*time.Second)
	defer cancel()
	r, err := probeBridge(ctx, o)
	r.Duration = Millis(time.Since(start))
	if err != nil {
		return r, fmt.Errorf("probing a bridge: %w", err)
	}
	return r, nil
}

func probeBridge(ctx context.Context, o BridgeOptions) (BridgeResult, error) {
	open := netns.Current
	if o.InScratch {
		open = netns.New
	}
	router, err := open(ctx)
	if o.InScratch && errors.Is(err, fs.ErrPermission) && len(o.Child) > 0 {
		return bridgeInChild(ctx, o)
	}
	if err != nil {
		return BridgeResult{}, err
	}
	defer router.Close()
	if err := o.prepare(ctx, router); err != nil {
		return BridgeResult{}, err
	}
	return probeIn(ctx, router, o)
}

// prepare applies the settings in the options to a scratch namespace.
func (o BridgeOptions) prepare(ctx context.Context, router *netns.Namespace) error {
	if !o.InScratch {
		return nil
	}
	forward := o.Forward == nil || *o.Forward
	if err := router.SetSysctl(ctx, forwardKey, sysctlBool(forward)); err != nil {
		return err
	}
	if o.CallIPTables == nil {
		return nil
	}
	err := router.SetSysctl(ctx, callKey, sysctlBool(*o.CallIPTables))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: br_netfilter is not loaded, or its setting is not per namespace (before Linux 5.3)", err)
	}
	return err
}

func sysctlBool(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

func (o BridgeOptions) timeout() time.Duration {
	if o.Timeout == 0 {
		return defaultTimeout
	}
	return o.Timeout
}

func (o BridgeOptions) validate() error {
	switch {
	case o.Timeout < 0:
		return fmt.Errorf("probing a bridge: timeout must not be negative, is %s", o.Timeout)
	case !o.InScratch && (o.CallIPTables != nil || o.Forward != nil):
		return errors.New("probing a bridge: CallIPTables and Forward require InScratch; the host's settings are not changed")
	}
	return nil
}
