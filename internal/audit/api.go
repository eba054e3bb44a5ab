package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/host/file"
	"nodegate/internal/input"
	"nodegate/internal/kube"
)

const (
	slicesPath   = "/apis/discovery.k8s.io/v1/endpointslices"
	servicesPath = "/api/v1/services"
	// listTime bounds both lists together: listing 50,000 endpoints takes seconds.
	listTime = 2 * time.Minute
)

// Truth is the origin of the API's EndpointSlices and Services: files as kubectl prints them, or
// an API server. The zero value names no source.
type Truth struct {
	Endpoints, Services string // files
	kube.Source
}

// Server returns the API server of the source, nil if the source is files or empty.
func (s Truth) Server() (*API, error) {
	client, err := s.Client()
	if client == nil || err != nil {
		return nil, err
	}
	return &API{client}, nil
}

// readFiles reads the files.
func (s Truth) readFiles(judged *proxy.Options) (err error) {
	judged.Endpoints, err = readFile(s.Endpoints, "EndpointSlices", proxy.LoadEndpointSlices, func(e *proxy.Endpoints) int { return e.Slices })
	if err == nil && s.Services == "" && s.Endpoints != "" {
		return errors.New("--endpoints needs --services: `kubectl get services -A -o json` prints them")
	} else if err == nil {
		judged.Services, err = readFile(s.Services, "Services", proxy.LoadServices, func(s *proxy.Services) int { return s.Count })
	}
	return err
}

// readFile reads a list of the API from a file. It returns nil if name is "". Every cluster has a Service and an EndpointSlice for its own
// API server, so an empty list is the wrong list: it would make every rule look stale.
func readFile[T any](name, what string, load func(io.Reader) (*T, error), count func(*T) int) (all *T, err error) {
	if name == "" {
		return all, nil
	}
	f, err := file.OpenInput(name)
	if err == nil {
		defer f.Close()
		if all, err = load(f); err == nil && count(all) == 0 {
			err = errors.New("the list is empty")
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w; `kubectl get %s -A -o json` prints them", what, err, strings.ToLower(what))
	}
	return all, nil
}

// API reads the Services and EndpointSlices of one API server: first as lists, then as changes.
type API struct{ *kube.Client }

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
	read := func(path string, list func(io.Reader) error) error {
		return a.Get(ctx, path+query, func(r io.Reader) error {
			if err := list(r); err != nil {
				return fmt.Errorf("reading the API server's %s: %w", path, err)
			}
			return nil
		})
	}
	err := read(slicesPath, func(r io.Reader) (err error) { v.Endpoints, err = proxy.LoadEndpointSlices(r); return err })
	if err == nil {
		err = read(servicesPath, func(r io.Reader) (err error) { v.Services, err = proxy.LoadServices(r); return err })
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", input.ErrUnknown, err)
	}
	if v.Endpoints.Slices == 0 || v.Services.Count == 0 {
		// Even the API server's own entries are missing: without this error, all rules would look stale.
		return nil, fmt.Errorf("%w: the API server lists %d Services and %d EndpointSlices", input.ErrUnknown, v.Services.Count,
			v.Endpoints.Slices)
	}
	return v, nil
}

// Follow sends the changes after the lists, each kind in order, until the context ends. It returns an error if it cannot continue. If the
// API server no longer has the version, Follow lists again after a pause, which grows if this recurs: all nodes of a cluster receive this
// error at the same time.
func (a *API) Follow(ctx context.Context, from *proxy.Versions, send func(proxy.Event)) error {
	slices, services := from.Endpoints.Version, from.Services.Version
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		began := time.Now()
		err := a.watchBoth(ctx, &slices, &services, send)
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, kube.ErrExpired) {
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
			errs <- a.Watch(ctx, w.path, w.version, func(object []byte, deleted bool) error {
				e, err := w.parse(object, deleted)
				if err == nil {
					send(e)
				}
				return err
			})
		})
	}
	wg.Wait()
	return errors.Join(<-errs, <-errs)
}
