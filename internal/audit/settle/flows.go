package settle

import (
	"context"
	"time"

	"nodegate/internal/audit/proxy"
)

// Flows returns findings about flows that conntrack still sends to endpoints that the API no longer has. One reading gives only suspects,
// because kube-proxy deletes such flows itself some time after its rules. Without suspects, the first reading is the only one. A finding
// requires that the flow persists for the settle time, is in use during that time, and that the API lacks its endpoint at the end too.
// Unused flows expire by themselves.
func Flows(ctx context.Context, table func(context.Context) ([]proxy.Flow, error), api API, listed *proxy.Versions,
	settle time.Duration,
) ([]proxy.Finding, error) {
	began := time.Now()
	suspects := map[string]proxy.StaleFlow{} // at the first reading
	var inUse []proxy.Flow
	for first := true; first || time.Since(began) < settle; first = false {
		if !first && !sleep(ctx, time.Second) {
			return nil, ctx.Err()
		}
		flows, err := table(ctx)
		if err != nil {
			return nil, err
		}
		again := map[string]proxy.StaleFlow{}
		inUse = nil
		for _, f := range proxy.StaleFlows(flows, listed.Services, listed.Endpoints) {
			then, suspected := suspects[f.ID()]
			if first {
				then, suspected = f, true
			}
			if !suspected {
				continue
			}
			again[f.ID()] = then
			const tick = 2 * time.Second // the kernel counts whole seconds
			if f.Left > then.Left-time.Since(began)+tick {
				inUse = append(inUse, f.Flow)
			}
		}
		if suspects = again; len(suspects) == 0 {
			return nil, nil
		}
	}
	latest, err := api.List(ctx, true)
	if err != nil {
		return nil, err
	}
	stale := proxy.StaleFlows(inUse, latest.Services, latest.Endpoints)
	return proxy.FlowFindings(stale), nil
}

// sleep returns false if the context ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
