package gate

import (
	"bytes"
	"context"
	"time"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
)

const (
	shipTime  = 30 * time.Second // bounds the policy's on_held program
	shipGrace = 5 * time.Second  // bounds the wait for it after the gate has decided
)

// tell passes the report to program, the policy's on_held, once for each start and in the background. The program's result neither
// holds nor releases the unit.
func (g *Gate) tell(program []string, document report.Report) {
	if len(program) == 0 || g.shipped != nil {
		return
	}
	var text bytes.Buffer
	if err := report.JSON(&text, document); err != nil {
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

// told waits up to shipGrace for the on_held program, and logs its error.
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
		g.Voice.log(host.LevelWarning, "nodegate: on_held is still running; not waiting for it", nil)
	}
}
