package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/input"
	"nodegate/internal/kube"
	"nodegate/internal/require"
)

// answers is an API server. It returns the start of a response and a function that writes the rest;
// nil: the response never ends.
type answers func(r *http.Request) (text string, more func(io.Writer) error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	text, more := a(r)
	body, w := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = w.CloseWithError(r.Context().Err()) })
	go func() {
		if _, err := io.WriteString(w, text); err == nil && more != nil {
			_ = w.CloseWithError(more(w))
		}
	}()
	return &http.Response{StatusCode: http.StatusOK, Body: body, Request: r}, nil
}

func (a answers) api() *API { return &API{kube.NewClient("", a)} }

func noMore(io.Writer) error { return io.EOF }

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

// list returns a list with one item of each kind.
func list(r *http.Request) (string, func(io.Writer) error) {
	item := `{"kind": "Service", "metadata": {"namespace": "prod", "name": "np"}, "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 80}]}}`
	if r.URL.Path == slicesPath {
		item = `{"kind": "EndpointSlice", "addressType": "IPv4", "metadata": {"namespace": "prod", "name": "np-1"}, "endpoints": []}`
	}
	return `{"metadata": {"resourceVersion": "1"}, "items": [` + item + `]}`, noMore
}

// TestListStalls: a list that begins but does not end is an error.
func TestListStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		api := answers(func(*http.Request) (string, func(io.Writer) error) { return `{"metadata": {}, "items": [`, nil }).api()
		_, err := api.List(t.Context(), false)
		if took := time.Since(began); !errors.Is(err, input.ErrUnknown) || took > 3*time.Minute {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// TestSilentWatch: a watch without events is restarted from the last version that it received,
// without a new list. One with bookmarks continues.
func TestSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var asked []string
		api := answers(func(r *http.Request) (string, func(io.Writer) error) {
			mu.Lock()
			defer mu.Unlock()
			switch asked = append(asked, fmt.Sprint(r.URL.Path, " ", r.URL.Query().Get("resourceVersion"))); {
			case !isWatch(r):
				t.Error("listed again")
				return list(r)
			case r.URL.Path == servicesPath && len(asked) <= 2:
				return `{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}`, nil
			case r.URL.Path == servicesPath:
				return "", nil
			}
			return "", func(w io.Writer) error {
				for {
					time.Sleep(time.Minute)
					if _, err := io.WriteString(w, `{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "8"}}}`); err != nil {
						return err
					}
				}
			}
		}).api()
		from, err := answers(list).api().List(t.Context(), false)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() { failed <- api.Follow(ctx, from, func(proxy.Event) {}) }()
		time.Sleep(14 * time.Minute)
		mu.Lock()
		got := strings.Join(asked[2:], ", ")
		mu.Unlock()
		if want := servicesPath + " 7, " + servicesPath + " 7"; got != want {
			t.Errorf("after both watches: %s, want %s", got, want)
		}
		cancel()
		if err := <-failed; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // the next bookmark is not received
	})
}

// TestExpiredRepeatedly: an API server that no longer has the version it has just listed is not queried
// in a tight loop.
func TestExpiredRepeatedly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		lists := 0
		api := answers(func(r *http.Request) (string, func(io.Writer) error) {
			mu.Lock()
			defer mu.Unlock()
			if isWatch(r) {
				return `{"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}`, noMore
			}
			if lists++; lists > 100 {
				return "{", noMore
			}
			return list(r)
		}).api()
		v, err := api.List(t.Context(), false)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if err := api.Follow(ctx, v, func(proxy.Event) {}); err != nil {
			t.Error(err)
		}
		if lists < 2*5 || lists > 2*20 {
			t.Errorf("%d lists in ten minutes", lists)
		}
	})
}
