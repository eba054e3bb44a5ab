package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// API is a client of a control plane, with the rights of its user.
type API struct {
	server string
	client *http.Client
}

const requestTime = 30 * time.Second

// encodeFile returns a file of the authority in base64.
func (a *authority) encodeFile(name string) (string, error) {
	text, err := os.ReadFile(a.filePath(name))
	return base64.StdEncoding.EncodeToString(text), err
}

// newAPI returns a client that authenticates with the certificate NAME.crt.
func (a *authority) newAPI(name, server string, from *Space) (*API, error) {
	pair, err := tls.LoadX509KeyPair(a.filePath(name+".crt"), a.filePath(name+".key"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(a.filePath("ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &API{server: server, client: &http.Client{Timeout: requestTime, Transport: &http.Transport{
		DialContext: from.DialContext, TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}},
	}}}, nil
}

// Status is an answer other than success.
type Status struct {
	Code    int
	Message string
}

func (s *Status) Error() string { return fmt.Sprintf("%d %s", s.Code, s.Message) }

// Do sends one request. body is encoded as JSON unless it is nil. The answer is decoded into out unless that is nil. The error may be
// a *Status.
func (a *API) Do(ctx context.Context, method, path string, body, out any) error {
	var sent io.Reader
	kind := "application/json"
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	if method == http.MethodPatch {
		kind = "application/merge-patch+json"
	}
	request, err := http.NewRequestWithContext(ctx, method, a.server+path, sent)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", kind)
	answer, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if answer.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %w", method, path, &Status{answer.StatusCode, string(text)})
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

// close closes idle connections.
func (a *API) close() { a.client.CloseIdleConnections() }
