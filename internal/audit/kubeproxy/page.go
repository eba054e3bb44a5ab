package kubeproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"nodegate/internal/kube"
)

// maxPage limits one of kube-proxy's pages.
const maxPage = 16 << 20

// Page reads one small page of a program on this node: kube-proxy's healthz or metrics. It returns
// the body, at most maxPage, and the HTTP status.
func Page(ctx context.Context, address string) (body []byte, status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("querying %s: %w", address, err)
	}
	client := &http.Client{
		Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true},
		// kube-proxy never redirects: another program on its port would send the query elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return nil, 0, fmt.Errorf("querying %s: %w", address, err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(kube.Bounded(resp.Body, maxPage))
	if err != nil {
		err = fmt.Errorf("querying %s: %w", address, err)
	}
	return body, resp.StatusCode, err
}
