package kubeproxy

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/host"
)

// Flows returns the flows that conntrack sends to endpoints on this node.
func Flows(ctx context.Context) ([]proxy.Flow, error) {
	found, err := host.Translated(ctx)
	if err != nil {
		return nil, err
	}
	own, err := host.Addresses()
	if err != nil {
		return nil, err
	}
	flows := make([]proxy.Flow, 0, len(found))
	for _, f := range found {
		flows = append(flows, flow(f, own))
	}
	return flows, nil
}

func flow(f host.Flow, own map[netip.Addr]bool) proxy.Flow {
	to := unmap(f.Orig.To)
	return proxy.Flow{
		Protocol: protocol(f.Orig.Proto), Client: unmap(f.Orig.From), To: to, Own: to.Addr().IsLoopback() || own[to.Addr()],
		Endpoint: unmap(f.Reply.From), Closing: closing(f), Replied: f.SeenReply, Left: f.Timeout,
	}
}

// UnreadFlows returns the finding for a conntrack table that could not be read completely in the audit's time.
func UnreadFlows(err error) proxy.Finding {
	return proxy.NewFinding(proxy.Finding{Name: "kubeproxy.conntrack.unread", Message: err.Error()})
}

func protocol(number uint8) string {
	switch number {
	case 6:
		return "tcp"
	case 17:
		return "udp"
	case 132:
		return "sctp"
	}
	return fmt.Sprint(number)
}

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// closing reports whether one side has closed a TCP connection.
func closing(f host.Flow) bool {
	return slices.Contains([]string{"FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE"}, f.TCPState)
}
