package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/host/config"
	"nodegate/internal/input"
)

const (
	slicesPath   = "/apis/discovery.k8s.io/v1/endpointslices"
	servicesPath = "/api/v1/services"
)

// maxEvent bounds one event of a watch: an object of the API has at most 1.5 MiB.
const maxEvent = 8 << 20

// The limits of the wait for an unresponsive API server. It must begin to respond within 20 s
// (newClient), or the request fails.
const (
	// listTime bounds both lists together: listing 50,000 endpoints takes seconds.
	listTime = 2 * time.Minute
	// watchSilence bounds the wait for an event of a watch: the API server sends a bookmark about
	// every minute (bookmarkFrequency of apiserver/pkg/storage/cacher). A watch that is silent for
	// longer is restarted from the last version. That is cheap, and an API server without bookmarks
	// may have nothing to send.
	watchSilence = 5 * time.Minute
	// watchTrouble bounds the time for which a watch may fail: if another API server replaces one
	// that stops, it responds sooner.
	watchTrouble = 30 * time.Second
)

// errSilent is the cause with which a silent watch is cancelled.
var errSilent = errors.New("no event from the API server")

// errExpired reports that the API server no longer has the changes since a version.
var errExpired = errors.New("the API server no longer has this version")

// API reads the Services and EndpointSlices of one API server: first as lists, then as changes.
type API struct{ client *Client }

// List reads both lists within listTime. After an error the state of the rules is unknown, so the
// error is input.ErrUnknown. If latest is false, the lists come from the API server's cache, as
// kube-proxy's own lists do, which is enough; if latest is true, they come from etcd.
func (a *API) List(ctx context.Context, latest bool) (*proxy.Versions, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	v, query := proxy.NewVersions(), "?resourceVersion=0"
	if latest {
		query = ""
	}
	if err := a.client.get(ctx, slicesPath+query, v.ReadEndpointSlices); err != nil {
		return nil, fmt.Errorf("%w: %w", input.ErrUnknown, err)
	}
	if err := a.client.get(ctx, servicesPath+query, v.ReadServices); err != nil {
		return nil, fmt.Errorf("%w: %w", input.ErrUnknown, err)
	}
	if v.Endpoints.Slices == 0 || v.Services.Count == 0 {
		// Even the API server's own entries are missing: without this error, all rules would look
		// stale.
		return nil, fmt.Errorf("%w: the API server lists %d Services and %d EndpointSlices", input.ErrUnknown, v.Services.Count,
			v.Endpoints.Slices)
	}
	return v, nil
}

// Follow sends the changes after the lists, each kind in order, until the context ends. It returns
// an error if it cannot continue. If the API server no longer has the version, Follow lists again
// after a pause, which grows if this recurs: all nodes of a cluster receive this error at the same
// time.
func (a *API) Follow(ctx context.Context, from *proxy.Versions, send func(proxy.Event)) error {
	slices, services := from.Endpoints.Version, from.Services.Version
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		began := time.Now()
		err := a.watchBoth(ctx, &slices, &services, send)
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, errExpired) {
			return err
		}
		if time.Since(began) > time.Minute {
			pause = time.Second
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause + rand.N(pause)):
		}
		now, err := a.List(ctx, true)
		if err != nil {
			return err
		}
		send(proxy.Relisted(now))
		slices, services = now.Endpoints.Version, now.Services.Version
	}
}

// watchBoth watches both kinds until one of the watches cannot continue.
func (a *API) watchBoth(ctx context.Context, slices, services *string, send func(proxy.Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	errs := make(chan error, 2)
	for _, w := range []struct {
		path    string
		version *string
		parse   func([]byte, bool) (proxy.Event, error)
	}{{slicesPath, slices, proxy.SliceChange}, {servicesPath, services, proxy.ServiceChange}} {
		wg.Go(func() {
			defer cancel()
			errs <- a.watchKind(ctx, w.path, w.version, w.parse, send)
		})
	}
	wg.Wait()
	return errors.Join(<-errs, <-errs)
}

// watchKind watches one kind. The API server ends every watch after some minutes, and when it
// restarts: watchKind then starts a new watch from the last version. It does the same after a
// transient error, unless only such errors occurred for watchTrouble.
func (a *API) watchKind(ctx context.Context, path string, version *string, parse func([]byte, bool) (proxy.Event, error),
	send func(proxy.Event)) error {
	const attempts = 10
	ended, wait := 0, time.Second
	var failing time.Time // since when it has been failing; zero if it is not
	for ended < attempts {
		err := a.client.watch(ctx, path, *version, func(kind string, object json.RawMessage) error {
			var meta struct {
				Metadata struct{ ResourceVersion string }
			}
			if err := json.Unmarshal(object, &meta); err != nil {
				return fmt.Errorf("watching %s: %w", path, err)
			}
			if kind != "BOOKMARK" {
				c, err := parse(object, kind == "DELETED")
				if err != nil {
					return fmt.Errorf("watching %s: %w", path, err)
				}
				send(c)
			}
			*version = meta.Metadata.ResourceVersion
			ended, wait, failing = 0, time.Second, time.Time{}
			return nil
		})
		if ctx.Err() != nil {
			return nil
		}
		pause := time.Second
		var passes *transientError
		switch {
		case err == nil:
			ended++
			failing = time.Time{}
		case !errors.As(err, &passes):
			return err
		default:
			if failing.IsZero() {
				failing = time.Now()
			}
			if pause = min(passes.after, watchTrouble/2); pause <= 0 {
				pause = wait/2 + rand.N(wait)
				wait = min(2*wait, watchTrouble/4)
			} else {
				pause += rand.N(pause/4 + 1)
			}
			if time.Since(failing)+pause > watchTrouble {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
	return fmt.Errorf("watching %s: the API server has ended the watch %d times without an event", path, attempts)
}

// watch passes every event since a version to each. It returns nil if the API server ends the
// watch, or sends nothing for watchSilence.
func (c *Client) watch(ctx context.Context, path, version string, each func(kind string, object json.RawMessage) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(watchSilence, func() { cancel(errSilent) })
	defer silent.Stop()
	query := url.Values{"watch": {"1"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {version}}
	err := c.get(ctx, path+"?"+query.Encode(), func(r io.Reader) error {
		bounded := &io.LimitedReader{R: r, N: maxEvent}
		in := json.NewDecoder(bounded)
		for {
			var event struct {
				Type   string
				Object json.RawMessage
			}
			err := in.Decode(&event)
			silent.Reset(watchSilence)
			switch {
			case bounded.N == 0:
				return fmt.Errorf("watching %s: an event of more than %d MiB", path, maxEvent>>20)
			case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
				return nil
			case err != nil:
				return eventError(path, err)
			case event.Type == "ERROR":
				return watchError(path, event.Object)
			}
			if err := each(event.Type, event.Object); err != nil {
				return err
			}
			bounded.N = maxEvent
		}
	})
	if errors.Is(context.Cause(ctx), errSilent) {
		return nil
	}
	return err
}

// eventError returns the error for an event that could not be read: it is transient if the
// connection broke, and permanent if the data is not an event.
func eventError(path string, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	no := errors.As(err, &syntax) || errors.As(err, &kind)
	if err = fmt.Errorf("watching %s: %w", path, err); no {
		return err
	}
	return &transientError{err: err}
}

// watchError reads the Status with which a watch ends.
func watchError(path string, object []byte) error {
	var status struct {
		Code    int
		Message string
		Details struct{ RetryAfterSeconds int }
	}
	unreadable := json.Unmarshal(object, &status)
	err := fmt.Errorf("watching %s: status %d: %.200s", path, status.Code, config.PlainMessage(status.Message))
	switch {
	case unreadable != nil:
		return err
	case status.Code == http.StatusGone:
		return errExpired
	case status.Code == http.StatusTooManyRequests || status.Code >= 500:
		return &transientError{err, time.Duration(status.Details.RetryAfterSeconds) * time.Second}
	}
	return err
}
