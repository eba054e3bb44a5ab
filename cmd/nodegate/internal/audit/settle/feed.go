package settle

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"nodegate/internal/proxyrules"
)

const (
	retryLeast = 2 * time.Second
	retryMost  = 2 * time.Minute
	patience   = time.Minute // with an API that does not answer, before that is said
)

// feed is an API that is listed once and followed for as long as nodegate watch runs. It is the API of each round, and of
// what runs beside it.
type feed struct {
	api  API
	news chan struct{} // one is waiting where something changed

	mu       sync.Mutex
	now      *proxyrules.Versions // nil: never listed
	changed  map[string]time.Time // Services since the last round, and when they first did
	relisted time.Time            // since the last round
	rounds   bool                 // one runs
	log      []proxyrules.Event   // since it began
	more     chan struct{}        // closed when the log grows
	err      error                // why it is not followed
	failing  time.Time            // since when
	again    context.CancelFunc   // lists again
	behind   bool                 // then past every cache: the watch has been behind
}

func newFeed(api API) *feed {
	return &feed{api: api, news: make(chan struct{}, 1), changed: map[string]time.Time{}, more: make(chan struct{})}
}

// run lists and follows, until the context ends.
func (f *feed) run(ctx context.Context) {
	for wait := retryLeast; ctx.Err() == nil; wait = min(2*wait, retryMost) {
		began := time.Now()
		f.failed(f.once(ctx))
		if time.Since(began) > patience {
			wait = retryLeast
		}
		sleep(ctx, wait/2+rand.N(wait)) // a fleet does not come back at once
	}
}

func (f *feed) once(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	f.again = cancel
	latest := f.behind
	f.behind = false
	f.mu.Unlock()
	now, err := f.api.List(ctx, latest)
	if err != nil {
		return err
	}
	f.take(proxyrules.Relisted(now))
	now.DropIndex()
	return f.api.Follow(ctx, now, f.take)
}

// take keeps one change. New lists are copied: the round that runs changes what it is sent.
func (f *feed) take(c proxyrules.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.failing = nil, time.Time{}
	if now := c.Relist(); now != nil {
		f.relisted, f.now = time.Now(), now.Current()
		f.now.DropIndex()
	} else {
		for _, service := range f.now.Apply(c) {
			if _, known := f.changed[service]; !known {
				f.changed[service] = time.Now()
			}
		}
		f.now.DropPast()
	}
	if f.rounds {
		f.log = append(f.log, c)
	}
	close(f.more)
	f.more = make(chan struct{})
	f.wake()
}

func (f *feed) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err = err; err != nil && f.failing.IsZero() {
		f.failing = time.Now()
	}
	f.wake()
}

func (f *feed) wake() {
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// pending returns when the first change came that no round has seen, the zero time where none did. known reports whether
// the API has been listed, err why it has not answered for long enough to be said.
func (f *feed) pending() (first time.Time, known bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first = f.relisted
	for _, at := range f.changed {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	if f.err != nil && time.Since(f.failing) >= patience {
		err = f.err
	}
	return first, f.now != nil, err
}

// begin begins a round: it returns what the API says now, and which Services changed since the last one. The caller calls end.
func (f *feed) begin() (now *proxyrules.Versions, changed map[string]time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed, f.changed, f.relisted, f.log = f.changed, map[string]time.Time{}, time.Time{}, nil
	f.rounds = true
	if f.now == nil {
		return nil, changed
	}
	return f.now.Current(), changed
}

// end ends a round.
func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rounds, f.log = false, nil
}

// restart lists again: the watch is behind.
func (f *feed) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.again != nil {
		f.behind = true
		f.again()
	}
}

// List lists the API itself.
func (f *feed) List(ctx context.Context, latest bool) (*proxyrules.Versions, error) {
	return f.api.List(ctx, latest)
}

// Follow sends what has changed since the round began.
func (f *feed) Follow(ctx context.Context, _ *proxyrules.Versions, send func(proxyrules.Event)) error {
	for sent := 0; ; {
		f.mu.Lock()
		fresh, more := f.log[min(sent, len(f.log)):], f.more
		f.mu.Unlock()
		for _, c := range fresh {
			send(c)
		}
		sent += len(fresh)
		select {
		case <-ctx.Done():
			return nil
		case <-more:
		}
	}
}
