package settle

import (
	"context"
	"time"

	"nodegate/internal/audit/proxy"
)

// follow starts the watch if there are suspects. l.end stops the watch and waits for it.
func (l *loop) follow(ctx context.Context) {
	if len(l.suspects) == 0 || l.follows {
		return
	}
	l.follows = true
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan change, 256)
	l.events = events
	send := func(e change) {
		select {
		case events <- e:
		case <-ctx.Done():
		}
	}
	go func() {
		defer close(events)
		if err := l.api.Follow(ctx, l.versions, func(c proxy.Event) { send(change{c: c}) }); err != nil {
			send(change{err: err})
		}
	}()
	l.end = func() {
		cancel()
		for range events { // wait until the watch has returned
		}
	}
}

// change is one event of the API, or the error that ended the watch.
type change struct {
	c   proxy.Event
	err error
}

// wait applies the API's changes for the time d, or until enough returns true. It returns false if the context ends.
func (l *loop) wait(ctx context.Context, d time.Duration, enough func() bool) bool {
	end := time.NewTimer(d)
	defer end.Stop()
	for !enough() {
		select {
		case <-ctx.Done():
			return false
		case <-end.C:
			return true
		case e, ok := <-l.events:
			switch {
			case !ok:
				l.events = nil
			case e.err != nil:
				l.broken = e.err
			default:
				for _, service := range l.versions.Apply(e.c) {
					l.changes[service]++
				}
			}
		}
	}
	return true
}
