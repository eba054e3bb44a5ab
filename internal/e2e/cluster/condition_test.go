//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// conditionPolicy requires one sysctl of the node's own network namespace, and publishes.
const conditionPolicy = `
sysctl "net.ipv4.ip_forward" {
  value = 1
  drift = "report"
}

publish {
  kubeconfig = %q
}
`

// TestCondition runs watch with a node's own credentials against a real API server with NodeRestriction. The Node registers late, the
// condition follows the verdict, and the certificate is rotated. Writing another Node must fail.
func TestCondition(t *testing.T) {
	c, binary := startPlane(t, Newest, ForRules()), buildNodegate(t)
	space, address, err := c.addSpace(t.Context())
	require.NoError(t, err)
	require.NoError(t, space.Shell(t.Context(), "sysctl -qw net.ipv4.ip_forward=1"))
	credentials := func() string {
		t.Helper()
		require.NoError(t, c.ca.issue("watched", "system:node:watched", []string{"system:nodes"}))
		file, err := c.ca.writeUserKubeconfig("watched", Server)
		require.NoError(t, err)
		return file
	}
	policy := filepath.Join(c.Dir, "condition.hcl")
	require.NoError(t, os.WriteFile(policy, fmt.Appendf(nil, conditionPolicy, credentials()), 0o644))
	log := filepath.Join(c.Dir, "watch.log")
	watch, err := space.Start(log, nil, binary, "watch", "--policy", policy, "--interval", "2s", "--allow-writable")
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = watch.Signal(syscall.SIGKILL) // an error means that it has already ended
		_ = watch.Wait()                  // it was killed, so an error is expected
		if t.Failed() {
			text, _ := os.ReadFile(log)
			t.Logf("output of watch:\n%s", text)
		}
	})
	waitUntil(t, "a watch that misses its Node", func() (bool, error) {
		text, err := os.ReadFile(log)
		return strings.Contains(string(text), "NodegatePassed"), err
	})
	for _, name := range []string{"watched", "other"} {
		require.NoError(t, c.Create(t.Context(), "/api/v1/nodes", object{"metadata": object{"name": name}}))
	}
	untilCondition(t, c, "watched", "True")
	require.NoError(t, space.Shell(t.Context(), "sysctl -qw net.ipv4.ip_forward=0"))
	untilCondition(t, c, "watched", "False")
	credentials()
	require.NoError(t, space.Shell(t.Context(), "sysctl -qw net.ipv4.ip_forward=1"))
	untilCondition(t, c, "watched", "True")

	// An Event follows its condition, but is not retried: an API server that stops between the two loses it.
	untilEvents(t, c, "watched", "Passed SysctlNetIpv4IpForward Passed")
	testOutage(t, c, space, log)

	// kubelet's own conditions stay unchanged, and the condition of another node cannot be written.
	status := object{"status": object{"conditions": []object{{"type": "Ready", "status": "True"}}, "addresses": []object{
		{"type": "InternalIP", "address": address}}}}
	require.NoError(t, c.API.Do(t.Context(), http.MethodPatch, "/api/v1/nodes/other/status", status, nil))
	text, err := os.ReadFile(policy)
	require.NoError(t, err)
	foreign := strings.Replace(string(text), "publish {", "publish {\n  node = \"other\"", 1)
	require.NoError(t, os.WriteFile(policy, []byte(foreign), 0o644))
	const first = `timeout 60 "$1" watch --policy "$2" --allow-writable 2>&1 | grep -m 1 "$3"` // watch ends with its reader
	assert.NoError(t, space.Shell(t.Context(), first, binary, policy, "403 Forbidden.*only its own Node"), "another node's condition")
	_, found := conditionOf(t, c, "other")
	assert.True(t, !found, "another node's condition was written")
	// With a credential plugin's certificate and without a name in the policy, the API server reports the certificate's user.
	plugged := strings.Replace(string(text), credentials(), c.writePlugin(t, "watched"), 1)
	require.NoError(t, os.WriteFile(policy, []byte(plugged), 0o644))
	untilEvents(t, c, "watched", "Passed SysctlNetIpv4IpForward Passed SysctlNetIpv4IpForward Passed")
	require.NoError(t, watch.Signal(syscall.SIGKILL))
	again, err := space.Start(log+".plugged", nil, binary, "watch", "--policy", policy, "--interval", "2s", "--allow-writable")
	require.NoError(t, err)
	defer func() { _ = again.Signal(syscall.SIGKILL) }()
	require.NoError(t, space.Shell(t.Context(), "sysctl -qw net.ipv4.ip_forward=0"))
	untilCondition(t, c, "watched", "False")
}

// testOutage stops the API server. A verdict that changes during the outage is published afterwards, and one outage logs one error.
func testOutage(t *testing.T, c *ControlPlane, space *Space, log string) {
	t.Helper()
	said := func() string {
		text := require.ReadFile(t, log)
		return string(text)
	}
	before := said()
	server := c.programs["kube-apiserver"]
	require.NoError(t, server.Signal(syscall.SIGSTOP))
	err := space.Shell(t.Context(), "sysctl -qw net.ipv4.ip_forward=0")
	time.Sleep(churnTime(20 * time.Second))
	require.NoError(t, errors.Join(err, server.Signal(syscall.SIGCONT)))
	began := time.Now()
	untilCondition(t, c, "watched", "False")
	t.Logf("condition False %.1f s after the API server was back", time.Since(began).Seconds())
	if n := strings.Count(strings.TrimPrefix(said(), before), "NodegatePassed"); n > 2 {
		t.Errorf("%d errors logged for one outage:\n%s", n, said())
	}
	require.NoError(t, space.Shell(t.Context(), "sysctl -qw net.ipv4.ip_forward=1"))
	untilCondition(t, c, "watched", "True")
}

// writePlugin writes a kubeconfig whose credential plugin prints the certificate NAME.crt.
func (c *ControlPlane) writePlugin(t *testing.T, name string) string {
	t.Helper()
	status := object{}
	for suffix, field := range map[string]string{".crt": "clientCertificateData", ".key": "clientKeyData"} {
		text := require.ReadFile(t, c.ca.filePath(name+suffix))
		status[field] = string(text)
	}
	const version = "client.authentication.k8s.io/v1"
	answer, err := json.Marshal(object{"apiVersion": version, "kind": "ExecCredential", "status": status})
	require.NoError(t, err)
	script := filepath.Join(c.Dir, "plugin")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\ncat <<'END'\n"+string(answer)+"\nEND\n"), 0o700))
	file, err := c.ca.writeKubeconfig("plugged", Server, "exec: {apiVersion: "+version+", interactiveMode: Never, command: "+script+"}")
	require.NoError(t, err)
	return file
}

type nodeCondition struct{ Type, Status, Reason, Message string }

func conditionOf(t *testing.T, c *ControlPlane, node string) (nodeCondition, bool) {
	t.Helper()
	var n struct {
		Status struct{ Conditions []nodeCondition }
	}
	require.NoError(t, c.API.Do(context.WithoutCancel(t.Context()), http.MethodGet, "/api/v1/nodes/"+node, nil, &n))
	for _, one := range n.Status.Conditions {
		if one.Type == "NodegatePassed" {
			return one, true
		}
	}
	return nodeCondition{}, false
}

func untilCondition(t *testing.T, c *ControlPlane, node, status string) {
	t.Helper()
	waitUntil(t, "condition "+status, func() (bool, error) {
		now, _ := conditionOf(t, c, node)
		return now.Status == status, nil
	})
}

// untilEvents waits until the Events of a node have these reasons, in the order of the Events' names.
func untilEvents(t *testing.T, c *ControlPlane, node, want string) {
	t.Helper()
	waitUntil(t, "the Events", func() (bool, error) {
		var events struct {
			Items []struct {
				Reason         string
				InvolvedObject struct{ Name string }
			}
		}
		if err := c.API.Do(t.Context(), http.MethodGet, "/api/v1/namespaces/default/events", nil, &events); err != nil {
			return false, err
		}
		var reasons []string
		for _, e := range events.Items {
			if e.InvolvedObject.Name == node {
				reasons = append(reasons, e.Reason)
			}
		}
		err := fmt.Errorf("Events of the node %s: %q, want %q", node, reasons, want)
		switch {
		case strings.Join(reasons, " ") == want:
			return true, nil
		case len(reasons) > len(strings.Fields(want)):
			return false, Final(err)
		}
		return false, err
	})
}
