package audit

import (
	"context"
	"errors"
	"sync"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/audit/settle"
	"nodegate/internal/kube"
)

// returnTime is the time after an outage of the API server within which a healthy kube-proxy reconnects: its pauses grow to 30 s, with
// jitter to a minute (defaultBackoffMax in client-go's tools/cache/reflector.go).
const returnTime = time.Minute

// answering records when the API server has answered this program. A request of kube-proxy that failed at another time does not count
// against kube-proxy.
type answering struct {
	settle.API

	mu    sync.Mutex
	away  bool
	since time.Time // the first answer after the last outage; zero without an outage
}

func (a *answering) List(ctx context.Context, latest bool) (*proxy.Versions, error) {
	v, err := a.API.List(ctx, latest)
	a.record(err)
	return v, err
}

func (a *answering) Follow(ctx context.Context, from *proxy.Versions, send func(proxy.Event)) error {
	err := a.API.Follow(ctx, from, send)
	if err != nil {
		a.record(err)
	}
	return err
}

func (a *answering) record(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case kube.IsTransient(err), errors.Is(err, context.DeadlineExceeded):
		a.away = true
	case err == nil && a.away:
		a.away, a.since = false, time.Now()
	}
}

// answeredSince returns since when the API server answers: now if it does not, and the zero time if it always has.
func (a *answering) answeredSince() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away {
		return time.Now()
	}
	return a.since
}
