package host_test

import (
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
)

// TestPodNetwork finds a Pod's network namespace by its UID, as containerd and CRI-O name cgroups.
func TestPodNetwork(t *testing.T) {
	const uid = "0b8d5f3a-1111-4222-8333-944445555666"
	files := map[string]string{
		"/var/log/pods/prod_web-1_" + uid + "/web/0.log": "", "/var/log/pods/prod_web-1-debug_77777777-1111-4222-8333-944445555666/a/0.log": "",
		"/var/log/pods/prod_gone_88888888-1111-4222-8333-944445555666/a/0.log": "",
		"/proc/1/cgroup": "0::/init.scope\n", "/proc/31/cgroup": "0::/kubepods/besteffort/pod77777777-1111-4222-8333-944445555666/1\n",
	}
	for cgroup, found := range map[string]bool{
		"0::/kubepods/besteffort/pod" + uid + "/6a1\n":                                                  true,
		"0::/kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/crio-1.scope\n": true,
		"0::/system.slice/kubelet.service\n":                                                            false,
	} {
		files["/proc/42/cgroup"] = cgroup
		h := (&hosttest.Machine{Files: files}).Host()
		path, err := h.PodNetwork("prod/web-1")
		assert.True(t, (!found || err == nil && path == "/proc/42/ns/net") && (found || err != nil), "%s: %q, %v", cgroup, path, err)
	}
	for pod, want := range map[string]string{"prod/none": "this node has no Pod prod/none", "web-1": "this node has no Pod default/web-1",
		"prod/gone": "no process of Pod prod/gone"} {
		_, err := (&hosttest.Machine{Files: files}).Host().PodNetwork(pod)
		assert.ErrorContains(t, err, want, "%s", pod)
	}
}
