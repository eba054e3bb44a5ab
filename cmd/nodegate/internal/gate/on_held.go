package gate

import (
	"bytes"
	"context"
	"time"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/policy"
)

const (
	shipTime  = 30 * time.Second // what the policy's program may take
	shipGrace = 5 * time.Second  // of that, after the gate has decided
)

// tell gives the report to the policy's on_held program, once a start, beside the gate: what becomes of it neither holds nor
// opens anything.
func (g *Gate) tell(p *policy.Policy, r checks.Outcome) {
	if len(p.Gate.OnHeld) == 0 || g.shipped != nil {
		return
	}
	var text bytes.Buffer
	if err := report.JSON(&text, report.New(g.Host, p, r)); err != nil {
		g.Voice.log(host.LevelWarning, "nodegate: on_held: "+err.Error(), nil)
		return
	}
	shipped := make(chan error, 1)
	g.shipped = shipped
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), shipTime)
		defer cancel()
		shipped <- host.Feed(ctx, text.String(), p.Gate.OnHeld)
	}()
}

// told waits a moment for the program, and says why it failed.
func (g *Gate) told() {
	if g.shipped == nil {
		return
	}
	select {
	case err := <-g.shipped:
		if err != nil {
			g.Voice.log(host.LevelWarning, "nodegate: on_held: "+err.Error(), nil)
		}
	case <-time.After(shipGrace):
		g.Voice.log(host.LevelWarning, "nodegate: on_held has not ended, and is left behind", nil)
	}
}
