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

// scratchProbe requires that a real connection through a scratch bridge gets its reply. It removes the links that it made, and changes
// no setting.
type scratchProbe struct{ probe }

func (p probe) Name() string              { return "probe." + p.Probe.Name }
func (p probe) Metadata() policy.Metadata { return p.Probe.Metadata }

// SendsPackets implements checks.Sender.
func (p scratchProbe) SendsPackets() {}

func (p probe) Inspect(ctx context.Context, h *host.Host) (checks.State, error) {
	s := checks.State{Want: p.Want()}
	if p.Probe.Name == policy.Bridge {
		s.Cause = "sysctl.net.bridge.bridge-nf-call-iptables"
	}
	if h.Prove == nil {
		return s, errors.New("packets can only be sent on the running machine")
	}
	proof, err := h.Prove(ctx, h, host.Probe{Name: p.Probe.Name, Address: p.Address, Protocol: p.Protocol, Wait: p.Timeout})
	if err != nil {
		return s, err
	}
	s.Pass, s.Got, s.Remedy = proof.Pass, proof.Lost, proof.Remedy
	if strings.Contains(s.Remedy, "modprobe br_netfilter") {
		s.Remedy = h.LoadRemedy(s.Remedy, "br_netfilter")
	}
	if proof.Pass {
		s.Got = s.Want
	}
	s.Evidence = []checks.Evidence{checks.Seen("packets", proof.Evidence)}
	return s, nil
}
