package setting

import (
	"context"
	"errors"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// probe requires that a connection to a Service of this node succeeds. It makes one, and a second if that fails.
type probe struct{ policy.Probe }

// scratchProbe requires that a real connection through a scratch bridge gets its reply, or that a Pod sandbox starts. It removes the
// links and sandboxes that it made; it changes no setting.
type scratchProbe struct{ probe }

func (p probe) Name() string              { return "probe." + p.Probe.Name }
func (p probe) Metadata() policy.Metadata { return p.Probe.Metadata }

// SendsPackets implements checks.Sender.
func (p scratchProbe) SendsPackets() {}

func (p probe) Inspect(ctx context.Context, h *host.Host) (checks.State, error) {
	s, source := checks.State{Want: p.Want()}, "packets"
	switch p.Probe.Name {
	case policy.Bridge:
		s.Cause = "sysctl.net.bridge.bridge-nf-call-iptables"
	case policy.Sandbox:
		source = "runtime"
	}
	switch {
	case h.Prove == nil && p.Probe.Name == policy.Sandbox:
		s.Skip = "Pods can only be started on the running machine"
		return s, nil
	case h.Prove == nil:
		return s, errors.New("packets can only be sent on the running machine")
	}
	proof, err := h.Prove(ctx, h, host.Probe{Name: p.Probe.Name, Address: p.Address, Protocol: p.Protocol, Wait: p.Timeout})
	if err != nil {
		return s, err
	}
	s.Pass, s.Got, s.Remedy, s.Skip, s.Minor = proof.Pass, proof.Lost, proof.Remedy, proof.Skip, proof.Minor
	if strings.Contains(s.Remedy, "modprobe br_netfilter") {
		s.Remedy = h.LoadRemedy(s.Remedy, "br_netfilter")
	}
	if proof.Pass {
		s.Got = s.Want
	}
	s.Evidence = []checks.Evidence{checks.Seen(source, proof.Evidence)}
	return s, nil
}
