package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"nodegate/internal/host/config"
)

// strategicMerge keeps the conditions that the patch does not name.
const strategicMerge = "application/strategic-merge-patch+json"

// readCondition returns a Node's condition of a type and the time of its last transition. Both are
// zero if the Node lacks this condition.
func (c *Client) readCondition(ctx context.Context, node, kind string) (now Condition, since time.Time, err error) {
	var n struct {
		Status struct {
			Conditions []struct {
				Condition
				LastTransitionTime time.Time
			}
		}
	}
	err = c.sendJSON(ctx, http.MethodGet, "/api/v1/nodes/"+node, "", nil, func(r io.Reader) error {
		return json.NewDecoder(r).Decode(&n)
	})
	for _, one := range n.Status.Conditions {
		if one.Type == kind {
			now, since = one.Condition, one.LastTransitionTime
		}
	}
	return now, since, err
}

// setCondition writes one condition of a Node and leaves the others alone.
func (c *Client) setCondition(ctx context.Context, node string, to Condition, now, since time.Time) error {
	type condition struct {
		Type               string    `json:"type"`
		Status             string    `json:"status"`
		Reason             string    `json:"reason"`
		Message            string    `json:"message"`
		LastHeartbeatTime  time.Time `json:"lastHeartbeatTime"`
		LastTransitionTime time.Time `json:"lastTransitionTime"`
	}
	var patch struct {
		Status struct {
			Conditions []condition `json:"conditions"`
		} `json:"status"`
	}
	patch.Status.Conditions = []condition{{
		to.Type, to.Status, to.Reason, to.Message, now.UTC().Truncate(time.Second), since.UTC().Truncate(time.Second),
	}}
	return c.sendJSON(ctx, http.MethodPatch, "/api/v1/nodes/"+node+"/status", strategicMerge, patch, nil)
}

// createEvent creates the Event that shows a condition's change in `kubectl describe node`.
func (c *Client) createEvent(ctx context.Context, node string, to Condition, now time.Time) error {
	kind, at := "Normal", now.UTC().Truncate(time.Second)
	if to.Status != "True" {
		kind = "Warning"
	}
	return c.sendJSON(ctx, http.MethodPost, "/api/v1/namespaces/default/events", "application/json", map[string]any{
		"metadata":       map[string]any{"name": fmt.Sprintf("%s.%x", node, now.UnixNano()), "namespace": "default"},
		"involvedObject": map[string]any{"kind": "Node", "apiVersion": "v1", "name": node, "uid": node}, // kubectl searches by this uid
		"type":           kind, "reason": to.Reason, "message": to.Type + " is " + to.Status + ": " + to.Message,
		"source":         map[string]any{"component": "nodegate", "host": node},
		"firstTimestamp": at, "lastTimestamp": at, "count": 1,
	}, nil)
}

// sendJSON sends one request, with body as JSON unless it is nil, and passes the response to read.
// The error is fs.ErrNotExist if the object does not exist.
func (c *Client) sendJSON(ctx context.Context, method, at, kind string, body any, read func(io.Reader) error) error {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	resp, err := c.sendRequest(ctx, method, at, kind, sent)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		if read == nil { // the rest of the body is read for the next request on this connection
			read = func(r io.Reader) error {
				_, err := io.Copy(io.Discard, r)
				return err
			}
		}
		if err := read(Bounded(resp.Body, maxAnswer)); err != nil {
			return fmt.Errorf("%s %s: %w", method, at, err)
		}
		return nil
	case resp.StatusCode == http.StatusNotFound:
		return missingObject(at)
	}
	return fmt.Errorf("%s %s: %s: %s", method, at, plainStatus(resp), refusalReason(resp.Body))
}

// ownNode returns the node that the API server identifies these credentials with (1.28 and later),
// if neither a certificate nor the policy names it.
func (c *Client) ownNode(ctx context.Context) (string, error) {
	user, status, err := c.whoAmI(ctx)
	if err != nil {
		return "", err
	}
	if status >= 300 && status != http.StatusNotFound {
		return "", fmt.Errorf("asking the API server for its name of these credentials: %d %s", status, http.StatusText(status))
	}
	node, found := strings.CutPrefix(user, nodeUser)
	if !found || node == "" {
		return "", errors.New("these credentials do not belong to a node; write node = \"NAME\" in the publish block")
	}
	return node, nil
}

// whoAmI returns the user name of these credentials according to the API server, and the status of its answer: 404 before 1.28.
func (c *Client) whoAmI(ctx context.Context) (user string, status int, err error) {
	const kind, at = "authentication.k8s.io/v1", "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	resp, err := c.sendRequest(ctx, http.MethodPost, at, "application/json",
		strings.NewReader(`{"apiVersion": "`+kind+`", "kind": "SelfSubjectReview"}`))
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	var review struct {
		Status struct{ UserInfo struct{ Username string } }
	}
	if resp.StatusCode < 300 {
		if err := json.NewDecoder(Bounded(resp.Body, maxAnswer)).Decode(&review); err != nil {
			return "", resp.StatusCode, fmt.Errorf("%s %s: %w", http.MethodPost, at, err)
		}
	}
	return review.Status.UserInfo.Username, resp.StatusCode, nil
}

// missingObject is the path of an object that the API server does not have. It matches
// fs.ErrNotExist.
type missingObject string

func (p missingObject) Error() string {
	return path.Base(string(p)) + " (" + string(p) + ") does not exist on the API server yet"
}
func (p missingObject) Is(target error) bool { return target == fs.ErrNotExist }

// refusalReason returns the API server's message about a refusal.
func refusalReason(body io.Reader) string {
	var status struct{ Message string }
	if err := json.NewDecoder(io.LimitReader(body, 64<<10)).Decode(&status); err != nil || status.Message == "" {
		return "no reason given"
	}
	return config.PlainMessage(status.Message)
}

// ErrRefused reports that the API server does not accept the credentials.
var ErrRefused = errors.New("the API server does not accept these credentials")

// ErrUnverified reports that a kubeconfig does not verify its server, so that no credential was sent.
var ErrUnverified = errors.New("the kubeconfig does not verify the server")

// Authenticate sends the credentials to the API server, and returns the user name with which it identifies them, "" if the server is
// older than 1.28. It sends nothing to a server that is not verified. The error is ErrRefused, ErrUnverified, a
// *tls.CertificateVerificationError, or another one if the server gave no answer.
func (c *Client) Authenticate(ctx context.Context) (user string, err error) {
	if c.unverified {
		return "", ErrUnverified
	}
	user, status, err := c.whoAmI(ctx)
	switch {
	case err != nil:
		return "", err
	case status == http.StatusUnauthorized, user == "system:anonymous":
		return "", ErrRefused
	case status >= 500, status/100 == 3, status == http.StatusTooManyRequests: // the client returns a redirection without a target
		return "", fmt.Errorf("querying the API server: %d %s", status, http.StatusText(status))
	}
	return user, nil
}
