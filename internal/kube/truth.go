package kube

import (
	"context"
	"fmt"
	"io"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/host/file"
)

// Source is the origin of the API's EndpointSlices and Services: files as kubectl prints them, or
// an API server. The zero value is no source.
type Source struct {
	Endpoints, Services string // files
	Kubeconfig          string
	InCluster           bool
	Plugins             *Plugins // for kubeconfigs with a credential plugin
}

// Server returns the API server of the source, nil if the source is files or empty.
func (s Source) Server() (*API, error) {
	var client *Client
	var err error
	switch {
	case s.Kubeconfig != "":
		client, err = FromKubeconfig(s.Kubeconfig, s.Plugins)
	case s.InCluster:
		client, err = InCluster()
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &API{client}, nil
}

// Unverified reports whether the kubeconfig turns off verification of the server's certificate: any
// machine on the network path could then forge the API's responses.
func (a *API) Unverified() bool { return a.client.unverified }

// Close closes the connections.
func (a *API) Close() { a.client.http.CloseIdleConnections() }

// Read reads the API's Services and EndpointSlices into judged, once.
func (s Source) Read(ctx context.Context, judged *proxy.Options) error {
	if err := s.readFiles(judged); err != nil {
		return err
	}
	api, err := s.Server()
	if api == nil || err != nil {
		return err
	}
	v, err := api.List(ctx, false)
	if err != nil {
		return err
	}
	judged.Endpoints, judged.Services = v.Endpoints, v.Services
	return nil
}

const empty = "reading %s: %sthe list is empty; use the output of `kubectl get %s -A -o json`"

func prefix(file string) string {
	if file == "" {
		return ""
	}
	return file + ": "
}

// readFiles reads the files. Every cluster has a Service and an EndpointSlice for its own API
// server, so an empty list is the wrong list: it would make every rule look stale.
func (s Source) readFiles(judged *proxy.Options) error {
	endpoints := func(r io.Reader) (err error) {
		judged.Endpoints, err = proxy.LoadEndpointSlices(r)
		return err
	}
	services := func(r io.Reader) (err error) {
		judged.Services, err = proxy.LoadServices(r)
		return err
	}
	if err := readFile(s.Endpoints, endpoints); err != nil {
		return fmt.Errorf("reading EndpointSlices: %w", err)
	}
	if err := readFile(s.Services, services); err != nil {
		return fmt.Errorf("reading Services: %w", err)
	}
	switch {
	case judged.Endpoints != nil && judged.Endpoints.Slices == 0:
		return fmt.Errorf(empty, "EndpointSlices", prefix(s.Endpoints), "endpointslices")
	case judged.Services != nil && judged.Services.Count == 0:
		return fmt.Errorf(empty, "Services", prefix(s.Services), "services")
	}
	return nil
}

// readFile passes a file to parse and names it in errors. It does nothing if name is "".
func readFile(name string, parse func(io.Reader) error) error {
	if name == "" {
		return nil
	}
	f, err := file.OpenInput(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := parse(f); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
