//go:build cluster

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// apiPaths maps the kinds in the exported base to the API paths where they are created.
func apiPaths() map[string]string {
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	const admission = "/apis/admissionregistration.k8s.io/v1/"
	return map[string]string{
		"DaemonSet": "/apis/apps/v1/namespaces/kube-system/daemonsets", "ServiceAccount": "/api/v1/namespaces/kube-system/serviceaccounts",
		"ClusterRole": rbac + "clusterroles", "ClusterRoleBinding": rbac + "clusterrolebindings",
		"Role": rbac + "namespaces/default/roles", "RoleBinding": rbac + "namespaces/default/rolebindings",
		"ValidatingAdmissionPolicy": admission + "validatingadmissionpolicies", "ValidatingAdmissionPolicyBinding": admission +
			"validatingadmissionpolicybindings",
	}
}

// TestDaemonSet: the API server accepts the exported base with all fields. The long-running container publishes with the token of its
// Pod and the rights of the base. Every other use of the token is refused, and it has only the rights of the base.
func TestDaemonSet(t *testing.T) {
	c, binary := startPlane(t, Newest, append(ForRules(), "kubectl")), buildNodegate(t)
	space, _, err := c.addSpace(t.Context())
	require.NoError(t, err)
	policy, base := filepath.Join(c.Dir, "pod.hcl"), filepath.Join(c.Dir, "base")
	text := "sysctl \"net.ipv4.ip_forward\" {\n  value = 1\n  drift = \"report\"\n}\npublish { by = \"pod\" }\n"
	require.NoError(t, os.WriteFile(policy, []byte(text), 0o644))
	image := "registry.example/nodegate@sha256:" + strings.Repeat("0", 64)
	require.NoError(t, c.Shell(t.Context(), `"$1" export daemonset --policy "$2" --image "$3" --output "$4"`, binary, policy, image, base))
	c.createAll(t, base)
	pod := c.daemonSet(t)
	command := pod.Containers[0].Command
	root := newNodeRoot(t, binary, policy, pod)
	before := root.files(t)
	root.run(t, pod.InitContainers[0].Command)
	assert.Contains(t, root.files(t), "/usr/local/bin/nodegate\n", "the init container installed")
	c.runUndo(t)
	root.run(t, c.daemonSet(t).InitContainers[0].Command)
	assert.Equal(t, root.files(t), before, "files after the undo")
	for _, name := range []string{"watched", "other"} {
		require.NoError(t, c.Create(t.Context(), "/api/v1/nodes", object{"metadata": object{"name": name}}))
	}
	token := c.podToken(t, "watched")
	start := func(env []string, args ...string) {
		t.Helper()
		log := filepath.Join(c.Dir, args[0]+".log")
		p, err := space.Start(log, nil, "env", append(env, append([]string{binary}, args...)...)...)
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = p.Signal(syscall.SIGKILL) // an error means that it has already ended
			_ = p.Wait()                  // it was killed, so an error is expected
			if text, _ := os.ReadFile(log); t.Failed() {
				t.Logf("output of %s:\n%s", args[0], text)
			}
		})
	}
	err = space.Shell(t.Context(), `sysctl -qw net.ipv4.ip_forward=1
account=/var/run/secrets/kubernetes.io/serviceaccount; mkdir -p $account; cp "$1" $account/ca.crt; printf %s "$2" >$account/token`,
		c.ca.filePath("ca.crt"), token)
	require.NoError(t, err)
	host, port, _ := strings.Cut(strings.TrimPrefix(Server, "https://"), ":")
	start([]string{"NODE_NAME=watched", "KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port}, command[1:]...)
	untilCondition(t, c, "watched", "Unknown") // watch does not run yet
	start(nil, "watch", "--policy", policy, "--interval", "2s", "--allow-writable")
	untilCondition(t, c, "watched", "True")
	require.NoError(t, space.Shell(t.Context(), "sysctl -qw net.ipv4.ip_forward=0"))
	untilCondition(t, c, "watched", "False")

	for _, refused := range []struct{ what, path, kind, body, says string }{
		{"another Node's condition", "/api/v1/nodes/other/status", "strategic-merge",
			`{"status":{"conditions":[{"type":"NodegatePassed","status":"True"}]}}`,
			"the condition of its own Node"},
		{"another condition", "/api/v1/nodes/watched/status", "strategic-merge", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`,
			"may only write the condition NodegatePassed"},
		{"its capacity", "/api/v1/nodes/watched/status", "merge", `{"status":{"capacity":{"cpu":"99"}}}`,
			"may only write the condition NodegatePassed"},
		{"its labels", "/api/v1/nodes/watched/status", "merge", `{"metadata":{"labels":{"a":"b"}}}`, "may only write the condition NodegatePassed"},
		{"its taints", "/api/v1/nodes/watched", "merge", `{"spec":{"taints":[]}}`, "cannot patch resource"},
	} {
		out, err := space.Output(t.Context(), "curl", "-s", "--cacert", c.ca.filePath("ca.crt"), "-H", "Authorization: Bearer "+token, "-X", "PATCH",
			"-H", "Content-Type: application/"+refused.kind+"-patch+json", "-d", refused.body, Server+refused.path)
		assert.True(t, err == nil && strings.Contains(out, refused.says), "%s: %v\n%s", refused.what, err, out)
	}
	mine, others := c.listRights(t, token, "default"), c.listRights(t, c.token(t, "default", nil), "default")
	for rule := range others {
		delete(mine, rule)
	}
	want := map[string]bool{"get nodes": true, "patch nodes/status": true, "create events": true}
	assert.True(t, reflect.DeepEqual(mine, want), "the service account has the rights %v, want %v", mine, want)
	system := c.listRights(t, token, "kube-system")
	assert.True(t, !system["create events"] && system["get nodes"], "in kube-system it has the rights %v", system)
}

// createAll creates the objects in a directory of manifests.
func (c *ControlPlane) createAll(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"rbac.yaml", "own-node.yaml", "daemonset.yaml"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		in := yaml.NewDecoder(bytes.NewReader(text))
		for {
			var o object
			if err := in.Decode(&o); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			kind := fmt.Sprint(o["kind"])
			require.NoError(t, c.API.Do(t.Context(), http.MethodPost, apiPaths()[kind]+"?fieldValidation=Strict", o, nil), "%s", kind)
		}
	}
}

// podSpec is the part of the DaemonSet's Pod that this test uses.
type podSpec struct {
	Containers, InitContainers []struct {
		Command      []string
		VolumeMounts []struct{ Name, MountPath string }
	}
}

func (c *ControlPlane) daemonSet(t *testing.T) podSpec {
	t.Helper()
	var made struct {
		Spec struct{ Template struct{ Spec podSpec } }
	}
	require.NoError(t, c.API.Do(t.Context(), http.MethodGet, apiPaths()["DaemonSet"]+"/nodegate", nil, &made))
	return made.Spec.Template.Spec
}

// runUndo runs the documented command that makes the DaemonSet uninstall nodegate.
func (c *ControlPlane) runUndo(t *testing.T) {
	t.Helper()
	text := require.ReadFile(t, filepath.Join(repository, "docs/export.md"))
	for line := range strings.Lines(string(text)) {
		if arguments, found := strings.CutPrefix(line, "kubectl -n kube-system patch "); found {
			require.NoError(t, c.Shell(t.Context(), `"$1" --kubeconfig "$2" -n kube-system patch `+arguments, c.programPath("kubectl"),
				c.Kubeconfig))
			return
		}
	}
	t.Fatal("the undo command is missing in docs/export.md")
}

// podToken returns a token of the service account nodegate, bound to a Pod on a node.
func (c *ControlPlane) podToken(t *testing.T, node string) string {
	t.Helper()
	pod := object{"metadata": object{"name": "nodegate"}, "spec": object{"nodeName": node, "serviceAccountName": "nodegate",
		"automountServiceAccountToken": false, "containers": []object{{"name": "a", "image": "a"}}}}
	var made struct{ Metadata struct{ UID string } }
	require.NoError(t, c.API.Do(t.Context(), http.MethodPost, "/api/v1/namespaces/kube-system/pods", pod, &made))
	return c.token(t, "nodegate", object{"kind": "Pod", "apiVersion": "v1", "name": "nodegate", "uid": made.Metadata.UID})
}

// token returns a token of a service account in kube-system.
func (c *ControlPlane) token(t *testing.T, account string, bound object) string {
	t.Helper()
	spec := object{}
	if bound != nil {
		spec["boundObjectRef"] = bound
	} else if err := c.Create(t.Context(), "/api/v1/namespaces/kube-system/serviceaccounts",
		object{"metadata": object{"name": account}}); err != nil {
		t.Fatal(err)
	}
	var made struct{ Status struct{ Token string } }
	path := "/api/v1/namespaces/kube-system/serviceaccounts/" + account + "/token"
	require.NoError(t, c.API.Do(t.Context(), http.MethodPost, path, object{"spec": spec}, &made))
	return made.Status.Token
}

// listRights returns the rights of a token in a namespace and on cluster-wide objects, such as "get nodes".
func (c *ControlPlane) listRights(t *testing.T, token, namespace string) map[string]bool {
	t.Helper()
	var review struct {
		Status struct {
			ResourceRules []struct{ Verbs, APIGroups, Resources []string }
		}
	}
	asker := &API{server: c.API.server, client: &http.Client{Timeout: requestTime, Transport: &bearer{c.API.client.Transport, token}}}
	require.NoError(t, asker.Do(t.Context(), http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
		object{"spec": object{"namespace": namespace}}, &review))
	all := map[string]bool{}
	for _, rule := range review.Status.ResourceRules {
		for _, verb := range rule.Verbs {
			for _, resource := range rule.Resources {
				all[verb+" "+resource] = true
			}
		}
	}
	return all
}

// bearer sends a token instead of the administrator's certificate.
type bearer struct {
	to    http.RoundTripper
	token string
}

func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	plain := b.to.(*http.Transport).Clone()
	plain.TLSClientConfig.Certificates = nil
	defer plain.CloseIdleConnections()
	r.Header.Set("Authorization", "Bearer "+b.token)
	return plain.RoundTrip(r)
}
