package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/host"
	"nodegate/internal/kube"
)

// server is an API server. It reads its credentials again after every failure, because they may not exist yet or be renewed.
type server struct {
	host       *host.Host
	kubeconfig string
	warn       func(string)
	plugins    *kube.Plugins

	mu     sync.Mutex
	api    *API
	warned bool
}

func (s *server) openClient() (*API, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.api != nil {
		return s.api, nil
	}
	source := Truth{Source: kube.Source{Kubeconfig: s.kubeconfig, Plugins: s.plugins}}
	if source.Kubeconfig == "" {
		source.InCluster = kube.InPod()
	}
	if source.Kubeconfig == "" && !source.InCluster {
		found, err := proxyKubeconfig(s.host)
		if err != nil {
			return nil, err
		}
		source.Kubeconfig = found
	}
	api, err := source.Server()
	if err != nil {
		return nil, err
	}
	if api.Unverified() && !s.warned {
		s.warned = true
		s.warn("audit: " + unverified(source.Kubeconfig))
	}
	s.api = api
	return api, nil
}

func unverified(kubeconfig string) string {
	return cmp.Or(kubeconfig, "the service account") +
		" has insecure-skip-tls-verify: the API server's certificate is not verified, and its answers can be forged"
}

// proxyKubeconfig returns the path where kops and custom units store kube-proxy's credentials.
func proxyKubeconfig(h *host.Host) (string, error) {
	names := []string{"/var/lib/kube-proxy/kubeconfig", "/var/lib/kube-proxy/kubeconfig.conf", "/etc/kubernetes/kube-proxy.kubeconfig"}
	for _, name := range names {
		if _, err := h.Files.ReadFile(name); err == nil {
			return name, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("kube-proxy has no kubeconfig on this node (%s is missing): set one that may list and watch Services and "+
		"EndpointSlices, audit { kubeconfig = \"...\" }", names[0])
}

// closeClient drops a client that failed.
func (s *server) closeClient(api *API) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.api == api {
		s.api = nil
	}
	api.Close()
}

func (s *server) List(ctx context.Context, latest bool) (*proxy.Versions, error) {
	api, err := s.openClient()
	if err != nil {
		return nil, err
	}
	v, err := api.List(ctx, latest)
	if err != nil {
		s.closeClient(api)
	}
	return v, err
}

func (s *server) Follow(ctx context.Context, from *proxy.Versions, send func(proxy.Event)) error {
	api, err := s.openClient()
	if err != nil {
		return err
	}
	defer s.closeClient(api)
	return api.Follow(ctx, from, send)
}
