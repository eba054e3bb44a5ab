package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/kube"
	"nodegate/internal/require"
)

// troubled is an API server whose watches of Services return the given responses in order, and then
// repeat the last one. Its watches of EndpointSlices send no events.
type troubled struct {
	answers []func() (*http.Response, error)

	mu    sync.Mutex
	asked []string // "VERSION SECONDS", seconds since the previous watch
	last  time.Time
}

func (s *troubled) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == slicesPath {
		body, w := io.Pipe()
		context.AfterFunc(r.Context(), func() { _ = w.CloseWithError(r.Context().Err()) })
		return &http.Response{StatusCode: http.StatusOK, Body: body, Request: r}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.IsZero() {
		s.last = time.Now()
	}
	s.asked = append(s.asked, fmt.Sprintf("%s %d", r.URL.Query().Get("resourceVersion"), int(time.Since(s.last).Seconds())))
	s.last = time.Now()
	resp, err := s.answers[min(len(s.asked), len(s.answers))-1]()
	if err == nil {
		resp.Request = r
	}
	return resp, err
}

// status returns a response with a status code.
func status(code int, retryAfter string) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		header := http.Header{"Retry-After": {retryAfter}}
		return &http.Response{StatusCode: code, Status: fmt.Sprint(code), Header: header, Body: http.NoBody}, nil
	}
}

// events returns a response that ends with an error.
func events(text string, end error) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		body, w := io.Pipe()
		go func() {
			_, _ = io.WriteString(w, text)
			_ = w.CloseWithError(end)
		}()
		return &http.Response{StatusCode: http.StatusOK, Body: body}, nil
	}
}

func bookmark(version string) string {
	return `{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "` + version + `"}}}`
}

func refused() (*http.Response, error) { return nil, syscall.ECONNREFUSED }

// follow returns the result of Follow within a time, the number of its requests, and when it ended.
func (s *troubled) follow(t *testing.T, d time.Duration) (asked []string, took time.Duration, err error) {
	t.Helper()
	from, err := answers(list).api().List(t.Context(), false)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	began := time.Now()
	err = (&API{kube.NewClient("", s)}).Follow(ctx, from, func(proxy.Event) {})
	return s.asked, time.Since(began), err
}

// TestWatchTrouble: a transient error does not end the watch. It continues from the last version,
// and not before the server permits it.
func TestWatchTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &troubled{answers: []func() (*http.Response, error){
			status(http.StatusTooManyRequests, "7"), refused, events(bookmark("5"), syscall.ECONNRESET),
			events(`{"type": "ERROR", "object": {"code": 500, "details": {"retryAfterSeconds": 9}}}`, io.EOF),
			status(http.StatusServiceUnavailable, ""), events(bookmark("8"), io.EOF),
		}}
		asked, _, err := s.follow(t, 45*time.Second)
		require.NoError(t, err)
		for i, want := range []struct {
			version  string
			from, to int
		}{{"1", 0, 0}, {"1", 7, 8}, {"1", 0, 1}, {"5", 0, 1}, {"5", 9, 11}, {"5", 1, 3}, {"8", 1, 1}} {
			var version string
			var after int
			if i < len(asked) {
				_, _ = fmt.Sscan(asked[i], &version, &after)
			}
			if version != want.version || after < want.from || after > want.to {
				t.Fatalf("watch %d of %q: want version %s after %d to %d s", i, asked, want.version, want.from, want.to)
			}
		}
	})
}

// TestWatchEnds: a lasting error ends the watch, a permanent one at once.
func TestWatchEnds(t *testing.T) {
	for _, c := range []struct {
		what, want  string
		answer      func() (*http.Response, error)
		after       time.Duration
		least, most int
	}{
		{"overloaded", "429", status(http.StatusTooManyRequests, "1"), 30 * time.Second, 15, 35},
		{"requests an hour's wait", "503", status(http.StatusServiceUnavailable, "3600"), 30 * time.Second, 1, 2},
		{"no server", "connection refused", refused, 30 * time.Second, 3, 12},
		{"breaks", "connection reset", events("", syscall.ECONNRESET), 30 * time.Second, 3, 12},
		{"forbidden", "may not list and watch", status(http.StatusForbidden, "1"), 0, 1, 1},
		{"unauthorised", "may not list and watch", status(http.StatusUnauthorized, ""), 0, 1, 1},
		{"not found", "404", status(http.StatusNotFound, ""), 0, 1, 1},
		{"not an event", "invalid character", events("<html>", io.EOF), 0, 1, 1},
		{"ends without an event", "ended the watch 10 times", events("", io.EOF), 10 * time.Second, 10, 10},
		{"ends after each event", "", events(bookmark("5"), io.EOF), 10 * time.Minute, 500, 700},
		{"breaks after each event", "", events(bookmark("5"), syscall.ECONNRESET), 10 * time.Minute, 300, 1200},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked, took, err := (&troubled{answers: []func() (*http.Response, error){c.answer}}).follow(t, 10*time.Minute)
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || errors.Is(err, kube.ErrExpired) {
					t.Errorf("%v, want %q", err, c.want)
				}
				if took > c.after || took < c.after/3 || len(asked) < c.least || len(asked) > c.most {
					t.Errorf("%d times in %s, want %d to %d in up to %s", len(asked), took, c.least, c.most, c.after)
				}
			})
		})
	}
}
