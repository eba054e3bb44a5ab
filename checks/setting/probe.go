package setting

import (
	"context"
	"errors"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// probe requires that a real connection through a scratch bridge gets its reply. It adds a bridge,
// two links and a table, and removes them afterwards; it changes no setting.
type probe struct{ policy.Probe }

func (p probe) Name() string              { return "probe." + p.Probe.Name }
func (p probe) Metadata() policy.Metadata { return p.Probe.Metadata }

// SendsPackets implements checks.Sender.
func (p probe) SendsPackets() {}

func (p probe) Inspect(ctx context.Context, h *host.Host) (checks.State, error) {
	s := checks.State{Want: "reply translated", Cause: "sysctl.net.bridge.bridge-nf-call-iptables"}
	if h.Prove == nil {
		return s, errors.New("packets can only be sent on the running machine")
	}
	proof, err := h.Prove(ctx, p.Timeout)
	if err != nil {
		return s, err
	}
	s.Pass, s.Got, s.Remedy = proof.Pass, proof.Lost, proof.Remedy
	if proof.Pass {
		s.Got = s.Want
	}
	s.Evidence = []checks.Evidence{checks.Seen("packets", proof.Evidence)}
	return s, nil
}
