package gate

import (
	"bytes"
	"context"
	"time"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
)

const (
	shipTime  = 30 * time.Second // what the policy's program may take
	shipGrace = 5 * time.Second  // of that, after the gate has decided
)

// tell gives the report to program, the policy's on_held, once a start, beside the gate: what becomes of it neither holds nor
// opens anything.
func (g *Gate) tell(program []string, document func() report.Report) {
	if len(program) == 0 || g.shipped != nil {
		return
	}
	var text bytes.Buffer
	if err := report.JSON(&text, document()); err != nil {
		g.Voice.log(host.LevelWarning, "nodegate: on_held: "+err.Error(), nil)
		return
	}
	shipped := make(chan error, 1)
	g.shipped = shipped
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), shipTime)
		defer cancel()
		shipped <- host.Feed(ctx, text.String(), program)
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
