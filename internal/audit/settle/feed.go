package settle

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"nodegate/internal/audit/proxy"
)

const (
	retryLeast = 2 * time.Second
	retryMost  = 2 * time.Minute
	patience   = time.Minute // time without an answer of the API until that is reported
)

// feed lists an API once and follows it as long as nodegate watch runs. It serves as the API of
// each round and of the parallel search for stale flows.
type feed struct {
	api  API
	news chan struct{} // signals a change

	mu      sync.Mutex
	now     *proxy.Versions    // nil until listed
	changed time.Time          // time of the first change or new list since the last round; zero: none
	rounds  bool               // a round is running
	log     []proxy.Event      // events since the round began
	more    chan struct{}      // closed when the log grows
	err     error              // error of the last attempt to follow the API
	failing time.Time          // time of the first failure
	answers time.Time          // time of the first answer after the last failure; zero: none has failed
	relist  context.CancelFunc // triggers a new list
	behind  bool               // the next list must bypass caches, because the watch lagged behind
}

func newFeed(api API) *feed {
	return &feed{api: api, news: make(chan struct{}, 1), more: make(chan struct{})}
}

// run lists and follows the API until the context ends.
func (f *feed) run(ctx context.Context) {
	for wait := retryLeast; ctx.Err() == nil; wait = min(2*wait, retryMost) {
		began := time.Now()
		f.setError(f.listAndFollow(ctx))
		if time.Since(began) > patience {
			wait = retryLeast
		}
		sleep(ctx, wait/2+rand.N(wait)) // spreads the reconnects of a fleet
	}
}

func (f *feed) listAndFollow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	f.relist = cancel
	latest := f.behind
	f.behind = false
	f.mu.Unlock()
	now, err := f.api.List(ctx, latest)
	if err != nil {
		return err
	}
	f.addEvent(proxy.Relisted(now))
	return f.api.Follow(ctx, now, f.addEvent)
}

// addEvent stores one event. It copies a new list, because the running round modifies its own.
func (f *feed) addEvent(c proxy.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.failing.IsZero() {
		f.answers = time.Now()
	}
	f.err, f.failing = nil, time.Time{}
	now, changed := c.Relist(), true
	if now != nil {
		f.now = now.Current()
	} else {
		changed = len(f.now.Apply(c)) > 0
		f.now.DropPast()
	}
	if changed && f.changed.IsZero() {
		f.changed = time.Now()
	}
	if f.rounds {
		f.log = append(f.log, c)
	}
	close(f.more)
	f.more = make(chan struct{})
	f.notify()
}

func (f *feed) setError(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err = err; err != nil && f.failing.IsZero() {
		f.failing = time.Now()
	}
	f.notify()
}

func (f *feed) notify() {
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// pending returns the time of the first change since the last round, or the zero time. known reports whether the API has been listed. err
// is the API's error once it has lasted longer than patience.
func (f *feed) pending() (first time.Time, known bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil && time.Since(f.failing) >= patience {
		err = f.err
	}
	return f.changed, f.now != nil, err
}

// answeredSince returns since when the API has answered: now if it does not, and the zero time if it always has.
func (f *feed) answeredSince() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.failing.IsZero() {
		return time.Now()
	}
	return f.answers
}

// beginRound starts a round, and returns the API's current state, nil if unknown. The caller must call endRound.
func (f *feed) beginRound() *proxy.Versions {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed, f.log, f.rounds = time.Time{}, nil, true
	if f.now == nil {
		return nil
	}
	return f.now.Current()
}

// endRound ends a round.
func (f *feed) endRound() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rounds, f.log = false, nil
}

// restart triggers a new list, because the watch lags behind.
func (f *feed) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.relist != nil {
		f.behind = true
		f.relist()
	}
}

// List lists the API.
func (f *feed) List(ctx context.Context, latest bool) (*proxy.Versions, error) {
	return f.api.List(ctx, latest)
}

// Follow sends the events since the round began.
func (f *feed) Follow(ctx context.Context, _ *proxy.Versions, send func(proxy.Event)) error {
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
