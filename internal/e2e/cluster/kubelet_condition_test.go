//go:build cluster

package cluster

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

const kubeletPolicy = `
sysctl "net.ipv4.ip_forward" {
  value = 1
  drift = "report"
}

link "d0" {
  match { name = "d0" }
  mtu   = 1400
  drift = "report"
}

publish {}
`

// TestKubeletCondition: a real kubelet registers its Node with the taint of `export readiness`. watch publishes beside kubelet's own
// updates, with kubelet's credentials and the usual rounds of half a minute. A real kube-scheduler must not place a Pod until the
// condition is True. Instead of the Node Readiness Controller, the test removes the taint when the condition is True, as the exported
// rule demands.
func TestKubeletCondition(t *testing.T) {
	c := startPlane(t, Newest, append(ForMachines(), "kube-scheduler"))
	space, address, err := c.addSpace(t.Context())
	require.NoError(t, err)
	n := newKubeletNode(t, space)
	c.prepareKubelet(t, n, address)
	watchLog := filepath.Join(c.Dir, "watch.log")
	begin := func(log, program string, args ...string) {
		t.Helper()
		p, err := n.Start(log, nil, program, args...)
		require.NoError(t, err)
		t.Cleanup(func() {
			killProcess(p)
			if text, _ := os.ReadFile(log); t.Failed() {
				t.Logf("end of %s:\n%s", filepath.Base(log), text[max(0, len(text)-4000):])
			}
		})
	}
	begin(watchLog, n.nodegate, "watch", "--policy", "/etc/watched.hcl")
	waitUntil(t, "a watch that misses its Node", func() (bool, error) {
		text, err := os.ReadFile(watchLog)
		return strings.Contains(string(text), "NodegatePassed"), err
	})
	begin(filepath.Join(c.Dir, "kubelet.log"), n.kubelet, n.flags...)
	waitUntil(t, "a Node", func() (bool, error) {
		return c.API.Do(t.Context(), http.MethodGet, "/api/v1/nodes/n1", nil, nil) == nil, nil
	})
	began := time.Now()
	untilCondition(t, c, "n1", "False")
	t.Logf("the condition appeared %.1f s after the Node", time.Since(began).Seconds())

	if err := c.LetNodesJoin(t.Context()); err != nil { // its controller removes the not-ready taint
		t.Fatal(err)
	}
	require.NoError(t, c.startProgram("kube-scheduler", c.programPath("kube-scheduler"), "--kubeconfig="+c.Kubeconfig, "--leader-elect=false"))
	pod := object{"metadata": object{"name": "p"}, "spec": object{
		"containers":                   []object{{"name": "a", "image": podImage, "imagePullPolicy": "Never"}},
		"automountServiceAccountToken": false, "enableServiceLinks": false, "hostNetwork": true,
	}}
	waitUntil(t, "a service account", func() (bool, error) {
		return c.Create(t.Context(), "/api/v1/namespaces/default/pods", pod) == nil, nil
	})
	waitUntil(t, "a Pod that waits for our taint only", func() (bool, error) {
		return strings.Contains(c.pod(t).why, "had untolerated taint(s)") && len(c.readTaints(t)) == 1, nil
	})
	c.watchKubelet(t)
	assert.Equal(t, c.pod(t).node, "", "the Pod is on")
	change := func(what, script, status string) {
		t.Helper()
		require.NoError(t, n.Shell(t.Context(), script))
		began := time.Now()
		untilCondition(t, c, "n1", status)
		t.Logf("%s: the condition is %s after %.1f s", what, status, time.Since(began).Seconds())
	}
	change("the parameter is right", "sysctl -qw net.ipv4.ip_forward=1", "True")
	c.removeTaint(t)
	waitUntil(t, "a Pod that runs", func() (bool, error) {
		p := c.pod(t)
		return p.phase == "Running" && p.node == "n1", nil
	})
	change("the link is wrong", "ip link set d0 mtu 1300", "False")
	change("the link is right", "ip link set d0 mtu 1400", "True")
	change("the parameter is wrong", "sysctl -qw net.ipv4.ip_forward=0", "False")
}

// prepareKubelet writes a policy that fails, and the configuration of a kubelet that registers its Node with the taint of `export
// readiness`.
func (c *ControlPlane) prepareKubelet(t *testing.T, n *kubeletNode, address string) {
	t.Helper()
	require.NoError(t, c.ca.issue("n1", "system:node:n1", []string{"system:nodes"}))
	credentials, err := c.ca.writeUserKubeconfig("n1", Server)
	require.NoError(t, err)
	n.writeConfig(t, "--config-dir=/etc/dropins --kubeconfig=/etc/kubernetes/api.conf --node-ip="+address)
	images := filepath.Join(c.Dir, "images.tar")
	require.NoError(t, writeImages(podProgram(t), images))
	err = n.Shell(t.Context(), `
ctr -n k8s.io images import "$4" >/dev/null
: >/etc/hosts
cp "$1" /etc/kubernetes/api.conf
printf %s "$2" >/etc/watched.hcl
"$3" export readiness --policy /etc/watched.hcl --output /etc/readiness
mkdir -p /etc/dropins /etc/cni/net.d
echo '{"cniVersion": "0.4.0", "name": "none", "plugins": [{"type": "loopback"}]}' >/etc/cni/net.d/10-none.conflist
cp /etc/readiness/kubelet.yaml /etc/dropins/10-nodegate.conf
cat >/etc/dropins/20-often.conf <<'E'
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
nodeStatusUpdateFrequency: 1s
nodeStatusReportFrequency: 1s
enforceNodeAllocatable: [none]
E
ip link add d0 type bridge; ip link set d0 mtu 1400
sysctl -qw net.ipv4.ip_forward=0`, credentials, kubeletPolicy, n.nodegate, images)
	require.NoError(t, err)
}

// watchKubelet observes the Node for a while. The condition must not change while kubelet writes its own conditions, and must be written
// at most three times in ten minutes.
func (c *ControlPlane) watchKubelet(t *testing.T) {
	t.Helper()
	writes, kubelets := map[string]bool{}, map[string]bool{}
	for deadline := time.Now().Add(churnTime(time.Minute)); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		var node struct {
			Status struct {
				Conditions []struct{ Type, Status, LastHeartbeatTime string }
			}
		}
		require.NoError(t, c.API.Do(t.Context(), http.MethodGet, "/api/v1/nodes/n1", nil, &node))
		found := false
		for _, one := range node.Status.Conditions {
			switch one.Type {
			case "NodegatePassed":
				found = one.Status == "False"
				writes[one.LastHeartbeatTime] = true
			case "Ready":
				kubelets[one.LastHeartbeatTime] = true
			}
		}
		require.True(t, found, "the condition is missing or changed: %+v", node.Status.Conditions)
	}
	t.Logf("%d writes of the condition, %d of kubelet's own", len(writes), len(kubelets))
	assert.True(t, len(writes) <= 3 && len(kubelets) >= 10,
		"%d writes of the condition, want at most 3; %d of kubelet's, want many", len(writes), len(kubelets))
}

type scheduled struct{ node, why, phase string }

// pod returns the node of the Pod p, or the reason why it is not scheduled.
func (c *ControlPlane) pod(t *testing.T) scheduled {
	t.Helper()
	var p struct {
		Spec   struct{ NodeName string }
		Status struct {
			Phase      string
			Conditions []struct{ Type, Status, Message string }
		}
	}
	require.NoError(t, c.API.Do(t.Context(), http.MethodGet, "/api/v1/namespaces/default/pods/p", nil, &p))
	s := scheduled{node: p.Spec.NodeName, phase: p.Status.Phase}
	for _, one := range p.Status.Conditions {
		if one.Type == "PodScheduled" && one.Status == "False" {
			s.why = one.Message
		}
	}
	return s
}

// removeTaint stands in for the Node Readiness Controller: it removes only the exported taint, and only if the condition is True.
func (c *ControlPlane) removeTaint(t *testing.T) {
	t.Helper()
	now, _ := conditionOf(t, c, "n1")
	require.True(t, now.Status == "True", "the condition is %+v", now)
	all, others := c.readTaints(t), []object{}
	for _, taint := range all {
		if taint["key"] != "readiness.k8s.io/nodegate" {
			others = append(others, taint)
		}
	}
	assert.True(t, len(others) != len(all), "the exported taint is missing on the Node: %v", all)
	require.NoError(t, c.API.Do(t.Context(), http.MethodPatch, "/api/v1/nodes/n1", object{"spec": object{"taints": others}}, nil))
}

func (c *ControlPlane) readTaints(t *testing.T) []object {
	t.Helper()
	var node struct{ Spec struct{ Taints []object } }
	require.NoError(t, c.API.Do(t.Context(), http.MethodGet, "/api/v1/nodes/n1", nil, &node))
	return node.Spec.Taints
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
