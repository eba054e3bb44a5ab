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

// BridgeOptions says how Bridge probes. The zero value probes the host's own
// network namespace and settings.
type BridgeOptions struct {
	// InScratch builds everything in a new network namespace, and needs no
	// privilege where Child is given and user namespaces are allowed.
	InScratch bool `json:"inScratch,omitempty"`
	// Timeout is how long to wait for the reply; 0 is one second. Building and
	// removing are bounded by ctx, or by ten seconds more.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Backend is netns.BackendNftables, netns.BackendIptables, or "" for nftables
	// and iptables where the kernel has no nf_tables.
	Backend string `json:"backend,omitempty"`
	// PerBridge sets nf_call_iptables of the scratch bridge, as some CNIs set
	// it on theirs. nil leaves what a new bridge has: 0.
	PerBridge *bool `json:"perBridge,omitempty"`
	// CallIPTables and Forward set net.bridge.bridge-nf-call-iptables and
	// net.ipv4.ip_forward of the scratch namespace; only with InScratch. nil is
	// a new namespace's own value, and true.
	CallIPTables *bool `json:"callIPTables,omitempty"`
	Forward      *bool `json:"forward,omitempty"`
	// Child is the arguments with which this program runs ChildMain, for
	// InScratch without privilege. Without them InScratch needs CAP_SYS_ADMIN.
	Child []string `json:"-"`
}

// BridgeResult is what a bridge probe found.
type BridgeResult struct {
	Pass     bool           `json:"pass"`           // the reply came back translated
	Lost     Loss           `json:"lost,omitempty"` // what did not arrive, where it does not hold
	Summary  string         `json:"summary"`
	Remedy   string         `json:"remedy,omitempty"`
	Where    string         `json:"where"` // "host", "scratch" or "user namespace"
	Backend  string         `json:"backend"`
	Service  netip.AddrPort `json:"service"`
	Endpoint netip.AddrPort `json:"endpoint"`
	Client   netip.AddrPort `json:"client"`
	Observed Observed       `json:"observed"`
	// Removed is what an earlier, killed probe had left. Warnings is what this
	// one could not remove or read, without effect on the verdict.
	Removed  []string `json:"removed,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	Duration Millis   `json:"durationMs"`
}

// The places where a bridge probe runs.
const (
	OnHost          = "host"
	InScratch       = "scratch"
	InUserNamespace = "user namespace"
)

const defaultTimeout = time.Second

// Bridge connects a client to a Service address whose endpoint is on the same
// bridge, and proves that the reply comes back translated. An error is "could
// not tell"; a data path that loses packets is a result that does not hold.
//
// On the host it needs CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_RAW, and adds
// a bridge, two links and an nftables table for the time of the probe. The
// kernel may load the modules of those; it loads no br_netfilter for them.
func Bridge(ctx context.Context, o BridgeOptions) (BridgeResult, error) {
	start := time.Now()
	if err := o.check(); err != nil {
		return BridgeResult{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout()+10*time.Second)
	defer cancel()
	r, err := bridgeSomewhere(ctx, o)
	r.Duration = Millis(time.Since(start))
	if err != nil {
		return r, fmt.Errorf("probing a bridge: %w", err)
	}
	return r, nil
}

func bridgeSomewhere(ctx context.Context, o BridgeOptions) (BridgeResult, error) {
	if !o.InScratch {
		router, err := netns.Current(ctx)
		if err != nil {
			return BridgeResult{}, err
		}
		defer router.Close()
		return bridgeOn(ctx, router, o)
	}
	router, err := netns.New(ctx)
	if errors.Is(err, fs.ErrPermission) && len(o.Child) > 0 {
		return bridgeInChild(ctx, o)
	}
	if err != nil {
		return BridgeResult{}, err
	}
	defer router.Close()
	if err := o.prepare(ctx, router); err != nil {
		return BridgeResult{}, err
	}
	return bridgeOn(ctx, router, o)
}

// prepare gives a scratch namespace the settings that the options ask for.
func (o BridgeOptions) prepare(ctx context.Context, router *netns.Namespace) error {
	forward := o.Forward == nil || *o.Forward
	if err := router.SetSysctl(ctx, forwardKey, bit(forward)); err != nil {
		return err
	}
	if o.CallIPTables == nil {
		return nil
	}
	err := router.SetSysctl(ctx, callKey, bit(*o.CallIPTables))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: br_netfilter is not loaded, or has this setting in no namespace of its own (before Linux 5.3)", err)
	}
	return err
}

func bit(on bool) string {
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

func (o BridgeOptions) check() error {
	switch {
	case o.Timeout < 0:
		return fmt.Errorf("probing a bridge: timeout %s is negative", o.Timeout)
	case !o.InScratch && (o.CallIPTables != nil || o.Forward != nil):
		return errors.New("probing a bridge: the host's settings are not changed; CallIPTables and Forward go with InScratch")
	}
	return nil
}
