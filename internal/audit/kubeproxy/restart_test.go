package kubeproxy_test

import (
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/audit/kubeproxy"
	"nodegate/internal/audit/proxy"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// TestRestartOn checks that a remedy names the command that restarts kube-proxy as it runs on the node.
func TestRestartOn(t *testing.T) {
	const container, manifest = "crictl stop $(crictl ps -q --name kube-proxy)", "/etc/kubernetes/manifests/kube-proxy.manifest"
	for _, c := range []struct{ what, process, cgroup, file, want string }{
		{"a DaemonSet", "/usr/local/bin/kube-proxy", "0::/kubepods.slice/kubepods-besteffort.slice/cri-containerd-1.scope\n", "", proxy.DeletePod},
		{"a static Pod of kops", "/usr/local/bin/kube-proxy", "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-1.scope\n", manifest, container},
		{"a static Pod of RKE2", "kube-proxy", "0::/kubepods/burstable/pod1/2\n", "/var/lib/rancher/rke2/agent/pod-manifests/kube-proxy.yaml", container},
		{"a static Pod that does not run", "bash", "", manifest, container},
		{"a systemd unit", "/usr/bin/kube-proxy", "0::/system.slice/kube-proxy.service\n", "", "systemctl restart kube-proxy"},
		{"a systemd unit, version 1", "/usr/bin/kube-proxy", "2:cpu:/system.slice/kube-proxy.service\n1:name=systemd:/system.slice/kube-proxy.service\n", "",
			"systemctl restart kube-proxy"},
		{"a server of k3s", "k3s", "0::/system.slice/k3s.service\n", "", "systemctl restart k3s"},
		{"an agent of k3s", "k3s-agent", "0::/system.slice/k3s-agent.service\n", "", "systemctl restart k3s-agent"},
		{"k3s without a unit", "k3s", "", "", "systemctl restart k3s"},
		{"MicroK8s", "/snap/microk8s/7964/kubelite", "0::/system.slice/snap.microk8s.daemon-kubelite.service\n", "",
			"systemctl restart snap.microk8s.daemon-kubelite"},
		{"MicroK8s, unknown unit", "/snap/microk8s/7964/kubelite", "", "", "snap restart microk8s.daemon-kubelite"},
		{"no kube-proxy", "bash", "", "", proxy.DeletePod},
	} {
		m := &hosttest.Machine{Files: map[string]string{"/proc/7/stat": "7 (a) S 1 7", "/proc/7/cmdline": c.process + "\x00",
			"/proc/self/ns/net": "-> net:[1]", "/proc/7/ns/net": "-> net:[1]"}}
		if c.cgroup != "" {
			m.Files["/proc/7/cgroup"] = c.cgroup
		}
		if c.file != "" {
			m.Files[c.file] = "kind: Pod\n"
		}
		const before, after = "restart kube-proxy: `", "`; then run the audit again"
		if got := kubeproxy.RestartOn(m.Host(), before+proxy.DeletePod+after); got != before+c.want+after {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
	assert.Equal(t, kubeproxy.RestartOn((&hosttest.Machine{}).Host(), "reboot"), "reboot", "another remedy")
}

// TestRestartYoung checks that a kube-proxy that its supervisor restarts every few seconds is not to be restarted.
func TestRestartYoung(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{"/proc/7/stat": "7 (a) S 1 7 7 0 -1 4194304 1 0 0 0 9 50 0 0 20 0 1 0 99500 0",
		"/proc/7/cmdline": "kube-proxy\x00", "/proc/self/ns/net": "-> net:[1]", "/proc/7/ns/net": "-> net:[1]", "/proc/uptime": "1000.00 1.00\n"}}
	findings := []proxy.Finding{{Remedy: "restart kube-proxy: `" + proxy.DeletePod + "`"}}
	kubeproxy.RestartAll(m.Host(), findings)
	if got := findings[0].Remedy; strings.Contains(got, "restart kube-proxy") || !strings.Contains(got, "started 5s ago") {
		t.Errorf("remedy: %s", got)
	}
}

// TestRestartAll checks that kube-proxy's process is searched once for all findings.
func TestRestartAll(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{"/proc/7/stat": "7 (a) S 1 7", "/proc/7/cmdline": "k3s\x00",
		"/proc/self/ns/net": "-> net:[1]", "/proc/7/ns/net": "-> net:[1]"}}
	h := m.Host()
	files := &countedFiles{Files: h.Files}
	h.Files = files
	findings := []proxy.Finding{{Remedy: "reboot"}, {Remedy: proxy.DeletePod}, {Remedy: "now " + proxy.DeletePod}}
	kubeproxy.RestartAll(h, findings)
	for i, want := range []string{"reboot", "systemctl restart k3s", "now systemctl restart k3s"} {
		assert.Equal(t, findings[i].Remedy, want)
	}
	if files.cgroups != 1 {
		t.Errorf("the process's control group was read %d times", files.cgroups)
	}
}

// TestNameNode checks that a known name takes the place of NODE in commands, and that chains keep their names.
func TestNameNode(t *testing.T) {
	findings := []proxy.Finding{{Remedy: "`kubectl cordon NODE; " + proxy.DeletePod + "`; see KUBE-NODE-PORT"}}
	kubeproxy.NameNode(findings, "")
	if !strings.Contains(findings[0].Remedy, "cordon NODE;") {
		t.Errorf("without a name: %s", findings[0].Remedy)
	}
	kubeproxy.NameNode(findings, "n$17")
	if got := findings[0].Remedy; !strings.Contains(got, "cordon n$17;") || !strings.Contains(got, "nodeName=n$17`; see KUBE-NODE-PORT") {
		t.Errorf("remedy: %s", got)
	}
}

// countedFiles counts the readings of control groups.
type countedFiles struct {
	host.Files
	cgroups int
}

func (f *countedFiles) ReadFile(name string) ([]byte, error) {
	if strings.HasSuffix(name, "/cgroup") {
		f.cgroups++
	}
	return f.Files.ReadFile(name)
}
