package kubeproxy

import (
	"errors"
	"net/netip"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/verdict"
)

// TestUnreadFlows: an unreadable conntrack table is reported as unknown.
func TestUnreadFlows(t *testing.T) {
	f := UnreadFlows(errors.New("permission denied"))
	if f.Name != "kubeproxy.conntrack.unread" || f.Verdict != verdict.Unknown || f.Message != "permission denied" {
		t.Errorf("got %+v", f)
	}
}

// TestFlow: the owner of a flow's destination address decides whether the flow may go to a node
// port; whether it had a reply is kept.
func TestFlow(t *testing.T) {
	own := map[netip.Addr]bool{netip.MustParseAddr("192.0.2.1"): true}
	for to, want := range map[string]bool{"192.0.2.1:30053": true, "[::ffff:192.0.2.1]:30053": true, "127.0.0.5:30053": true,
		"192.0.2.5:30053": false} {
		var f host.Flow
		f.Orig.To, f.Orig.Proto, f.SeenReply = netip.MustParseAddrPort(to), 6, want
		if got := flow(f, own); got.Own != want || got.Replied != want || got.Protocol != "tcp" {
			t.Errorf("%s: got %+v", to, got)
		}
	}
}

func TestClosing(t *testing.T) {
	for state, want := range map[string]bool{"": false, "SYN_SENT": false, "ESTABLISHED": false, "FIN_WAIT": true, "TIME_WAIT": true,
		"CLOSE": true} {
		assert.Equal(t, closing(host.Flow{TCPState: state}), want, "%q", state)
	}
}
