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

// readCondition returns a Node's condition of a type, the time of its last transition and the time
// of its last write. All are zero if the Node lacks this condition.
func (c *Client) readCondition(ctx context.Context, node, kind string) (now Condition, since, written time.Time, err error) {
	var n struct {
		Status struct {
			Conditions []struct {
				Condition
				LastTransitionTime, LastHeartbeatTime time.Time
			}
		}
	}
	err = c.sendJSON(ctx, http.MethodGet, "/api/v1/nodes/"+node, "", nil, func(r io.Reader) error {
		return json.NewDecoder(io.LimitReader(r, maxNode)).Decode(&n)
	})
	for _, one := range n.Status.Conditions {
		if one.Type == kind {
			now, since, written = one.Condition, one.LastTransitionTime, one.LastHeartbeatTime
		}
	}
	return now, since, written, err
}

// maxNode is more than etcd stores for one object.
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
		if read == nil {
			_, err := io.Copy(io.Discard, resp.Body)
			return err
		}
		return read(resp.Body)
	case resp.StatusCode == http.StatusNotFound:
		return missingObject(at)
	}
	return fmt.Errorf("%s %s: %s: %s", method, at, plainStatus(resp), refusalReason(resp.Body))
}

// ownNode returns the node that the API server identifies these credentials with (1.28 and later),
// if neither a certificate nor the policy names it.
func (c *Client) ownNode(ctx context.Context) (string, error) {
	const kind, at = "authentication.k8s.io/v1", "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	var review struct {
		Status struct{ UserInfo struct{ Username string } }
	}
	err := c.sendJSON(ctx, http.MethodPost, at, "application/json", map[string]any{"apiVersion": kind, "kind": "SelfSubjectReview"},
		func(r io.Reader) error { return json.NewDecoder(io.LimitReader(r, maxNode)).Decode(&review) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	node, found := strings.CutPrefix(review.Status.UserInfo.Username, nodeUser)
	if !found || node == "" {
		return "", errors.New("these credentials do not belong to a node; write node = \"NAME\" in the publish block")
	}
	return node, nil
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
