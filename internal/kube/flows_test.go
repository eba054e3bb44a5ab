package kube

import (
	"errors"
	"testing"

	"nodegate/checks"
	"nodegate/internal/host"
)

// TestUnreadFlows: a table that cannot be read is neither a finding nor nothing.
func TestUnreadFlows(t *testing.T) {
	f := UnreadFlows(errors.New("permission denied"))
	if f.Name != "kubeproxy.conntrack.unread" || f.Verdict != checks.Unknown || f.Message != "permission denied" {
		t.Errorf("got %+v", f)
	}
}

func TestClosing(t *testing.T) {
	for state, want := range map[string]bool{"": false, "SYN_SENT": false, "ESTABLISHED": false, "FIN_WAIT": true, "TIME_WAIT": true,
		"CLOSE": true} {
		if got := closing(host.Flow{TCPState: state}); got != want {
			t.Errorf("%q: got %v", state, got)
		}
	}
}
