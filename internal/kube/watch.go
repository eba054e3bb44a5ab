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
	"time"

	"nodegate/internal/host/config"
)

// maxEvent bounds one event of a watch: an object of the API has at most 1.5 MiB.
const maxEvent = 8 << 20

// The limits of the wait for an unresponsive API server. It must begin to respond within 20 s
// (newClient), or the request fails.
const (
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

// ErrExpired reports that the API server no longer has the changes since a version.
var ErrExpired = errors.New("the API server no longer has this version")

// Watch passes the objects that change after a version to each, and advances the version. The API
// server ends every watch after some minutes, and when it restarts: Watch then starts a new one from
// the last version. It does the same after a transient error, unless only such errors occurred for
// watchTrouble.
func (c *Client) Watch(ctx context.Context, path string, version *string, each func(object []byte, deleted bool) error) error {
	const attempts = 10
	ended, wait := 0, time.Second
	var failing time.Time // since when it has been failing; zero if it is not
	for ended < attempts {
		err := c.watchOnce(ctx, path, *version, func(kind string, object json.RawMessage) error {
			var meta struct {
				Metadata struct{ ResourceVersion string }
			}
			if err := json.Unmarshal(object, &meta); err != nil {
				return fmt.Errorf("watching %s: %w", path, err)
			}
			if kind != "BOOKMARK" {
				if err := each(object, kind == "DELETED"); err != nil {
					return fmt.Errorf("watching %s: %w", path, err)
				}
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

// watchOnce passes every event since a version to each. It returns nil if the API server ends the
// watch, or sends nothing for watchSilence.
func (c *Client) watchOnce(ctx context.Context, path, version string, each func(kind string, object json.RawMessage) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(watchSilence, func() { cancel(errSilent) })
	defer silent.Stop()
	query := url.Values{"watch": {"1"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {version}}
	err := c.Get(ctx, path+"?"+query.Encode(), func(r io.Reader) error {
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
		return ErrExpired
	case status.Code == http.StatusTooManyRequests || status.Code >= 500:
		return &transientError{err, time.Duration(status.Details.RetryAfterSeconds) * time.Second}
	}
	return err
}
