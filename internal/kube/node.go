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
)

// strategicMerge keeps the conditions that the patch does not name.
const strategicMerge = "application/strategic-merge-patch+json"

// condition returns what a Node says of a condition now, since when, and when it was written. All is zero where the Node has none of
// that type.
func (c *Client) condition(ctx context.Context, node, kind string) (now Condition, since, written time.Time, err error) {
	var n struct {
		Status struct {
			Conditions []struct {
				Condition
				LastTransitionTime, LastHeartbeatTime time.Time
			}
		}
	}
	err = c.send(ctx, http.MethodGet, "/api/v1/nodes/"+node, "", nil, func(r io.Reader) error {
		return json.NewDecoder(io.LimitReader(r, maxNode)).Decode(&n)
	})
	for _, one := range n.Status.Conditions {
		if one.Type == kind {
			now, since, written = one.Condition, one.LastTransitionTime, one.LastHeartbeatTime
		}
	}
	return now, since, written, err
}

// maxNode is more than etcd stores of one object.
const maxNode = 4 << 20

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
	return c.send(ctx, http.MethodPatch, "/api/v1/nodes/"+node+"/status", strategicMerge, patch, nil)
}

// event tells `kubectl describe node` that a condition has changed.
func (c *Client) event(ctx context.Context, node string, to Condition, now time.Time) error {
	kind, at := "Normal", now.UTC().Truncate(time.Second)
	if to.Status != "True" {
		kind = "Warning"
	}
	return c.send(ctx, http.MethodPost, "/api/v1/namespaces/default/events", "application/json", map[string]any{
		"metadata":       map[string]any{"name": fmt.Sprintf("%s.%x", node, now.UnixNano()), "namespace": "default"},
		"involvedObject": map[string]any{"kind": "Node", "apiVersion": "v1", "name": node, "uid": node}, // kubectl looks for this uid
		"type":           kind, "reason": to.Reason, "message": to.Type + " is " + to.Status + ": " + to.Message,
		"source":         map[string]any{"component": "nodegate", "host": node},
		"firstTimestamp": at, "lastTimestamp": at, "count": 1,
	}, nil)
}

// send sends one request with a body of JSON, or none, and passes the answer to read. The error is fs.ErrNotExist where the
// object does not exist.
func (c *Client) send(ctx context.Context, method, at, kind string, body any, read func(io.Reader) error) error {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	resp, err := c.do(ctx, method, at, kind, sent)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		if read == nil {
			_, err := io.Copy(io.Discard, resp.Body)
			return err
		}
		return read(resp.Body)
	case resp.StatusCode == http.StatusNotFound:
		return notThere(at)
	}
	return fmt.Errorf("%s %s: %s: %s", method, at, resp.Status, why(resp.Body))
}

// self returns the node that the API server takes us for (1.28 and later), where neither a certificate nor the policy says so.
func (c *Client) self(ctx context.Context) (string, error) {
	const kind, at = "authentication.k8s.io/v1", "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	var review struct {
		Status struct{ UserInfo struct{ Username string } }
	}
	err := c.send(ctx, http.MethodPost, at, "application/json", map[string]any{"apiVersion": kind, "kind": "SelfSubjectReview"},
		func(r io.Reader) error { return json.NewDecoder(io.LimitReader(r, maxNode)).Decode(&review) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	node, found := strings.CutPrefix(review.Status.UserInfo.Username, nodeUser)
	if !found || node == "" {
		return "", errors.New("these credentials are of no node: write node = \"NAME\" in the publish block")
	}
	return node, nil
}

// notThere is the path of an object that the API server does not have. It is fs.ErrNotExist.
type notThere string

func (p notThere) Error() string {
	return "the API server has no " + path.Base(string(p)) + " (" + string(p) + ") yet"
}
func (p notThere) Is(target error) bool { return target == fs.ErrNotExist }

// why returns what the API server says about a refusal.
func why(body io.Reader) string {
	var status struct{ Message string }
	if err := json.NewDecoder(io.LimitReader(body, 64<<10)).Decode(&status); err != nil || status.Message == "" {
		return "no reason given"
	}
	return status.Message
}
