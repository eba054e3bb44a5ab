//go:build cluster

package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"nodegate/internal/e2e/qemu"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// kubeletNode consists of namespaces, a real containerd and, one after the other, real kubelets in standalone mode, which create no
// cgroups.
type kubeletNode struct {
	*Space
	kubelet, nodegate string
	dir               string
	flags             []string
	starts            int
}

func newKubeletNode(t *testing.T, s *Space) *kubeletNode {
	t.Helper()
	for _, program := range []string{"containerd", "ip"} {
		hosttest.NeedProgram(t, program)
	}
	bin, err := Build(t.Context(), CacheDir(repositoryRoot(t)), cmp.Or(os.Getenv("KUBERNETES"), Newest), []string{"kubelet"})
	require.NoError(t, err)
	n := &kubeletNode{Space: s, kubelet: filepath.Join(bin, "kubelet"), nodegate: buildNodegate(t), dir: t.TempDir()}
	valid, expired := n.certificates(t)
	err = s.Shell(t.Context(), `
umount /sys; umount -l -R /sys/fs/cgroup || true; mount -t sysfs sysfs /sys # a hidden mount is still in the mount table
mount -t tmpfs tmpfs /var/lib; mount -t tmpfs tmpfs /var/log; mount -t tmpfs tmpfs /etc
mkdir -p /etc/systemd/system /etc/kubernetes /etc/containerd /var/lib/kubelet
echo root:x:0:0::/root:/bin/sh >/etc/passwd; echo root:x:0: >/etc/group; echo nameserver 192.0.2.1 >/etc/resolv.conf
cp "$1" /etc/kubernetes/valid.conf; cp "$2" /etc/kubernetes/expired.conf
printf 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "%s"\nrestrict_oom_score_adj = true\ndisable_cgroup = true\n' "$3" >/etc/containerd/config.toml
printf 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n' >/etc/containerd/bare.toml
for c in swap kubelet.runtime kubelet.ports kubelet.config kubelet.values kubelet.cgroup-v1 kubelet.root-dir \
  kubelet.node-ip kubelet.node-name; do
  echo "check \"$c\" {}"
done >/etc/policy.hcl
echo 'check "kubelet.protect-kernel-defaults" { severity = "block" }' >>/etc/policy.hcl
mkdir /run/cgroup2; mount -t cgroup2 cgroup2 /run/cgroup2
mount --bind /run/cgroup2 /sys/fs/cgroup
`, valid, expired, pauseImage)
	require.NoError(t, err)
	for name, socket := range map[string]string{"config": "containerd/containerd", "bare": "bare"} {
		_, err := s.Start(filepath.Join(n.dir, name+".log"), nil, "containerd", "--config", "/etc/containerd/"+name+".toml",
			"--address", "/run/"+socket+".sock", "--root", "/var/lib/"+name, "--state", "/run/"+name)
		require.NoError(t, err)
		require.NoError(t, s.Shell(t.Context(), `i=0; until [ -S "$1" ]; do i=$((i+1)); [ $i -lt 300 ]; sleep 0.1; done`,
			"/run/"+socket+".sock"))
	}
	return n
}

// certificates returns a kubeconfig with a valid client certificate, and one with an expired certificate.
func (n *kubeletNode) certificates(t *testing.T) (valid, expired string) {
	t.Helper()
	a, err := newAuthority(t.TempDir())
	require.NoError(t, err)
	files := [2]string{}
	for i, name := range []string{"valid", "expired"} {
		if name == "expired" {
			a.certificate.NotAfter = time.Now().Add(-time.Hour)
		}
		require.NoError(t, a.issue(name, "system:node:n1", []string{"system:nodes"}))
		files[i], err = a.writeUserKubeconfig(name, "https://127.0.0.1:6443")
		require.NoError(t, err)
	}
	return files[0], files[1]
}

// writeConfig writes kubelet's unit and configuration, and empties its directory.
func (n *kubeletNode) writeConfig(t *testing.T, flags string) {
	t.Helper()
	n.flags = strings.Fields("--hostname-override=n1 --config=/var/lib/kubelet/config.yaml " + flags)
	config := `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
volumePluginDir: /var/lib/kubelet/volume-plugins
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
`
	unit := "[Service]\nExecStart=" + n.kubelet + " " + strings.Join(n.flags, " ") + "\n"
	err := n.Shell(t.Context(), `
rm -rf /var/lib/kubelet/*
printf %s "$1" >/var/lib/kubelet/config.yaml
printf %s "$2" >/etc/systemd/system/kubelet.service
cp /etc/kubernetes/valid.conf /etc/kubernetes/kubelet.conf`, config, unit)
	require.NoError(t, err)
}

// runScript runs a script in the node. "LISTEN ADDRESS" instead starts a program that listens there until stop is called.
func (n *kubeletNode) runScript(t *testing.T, script string) (stop func()) {
	t.Helper()
	address, listens := strings.CutPrefix(script, "LISTEN ")
	if !listens {
		require.NoError(t, n.Shell(t.Context(), script))
		return func() {}
	}
	p, err := n.Start(filepath.Join(n.dir, "listener.log"), nil, n.nodegate, "watch", "--policy", "/etc/policy.hcl", "--listen", address)
	require.NoError(t, err)
	host, port, _ := strings.Cut(address, ":")
	wait := `i=0; until grep -q "$1 00000000:0000 0A" /proc/net/tcp; do i=$((i+1)); [ $i -lt 300 ]; sleep 0.1; done`
	number := 0
	_, err = fmt.Sscan(port, &number)
	require.True(t, err == nil && host != "", "%s is not an address", address)
	require.NoError(t, n.Shell(t.Context(), wait, fmt.Sprintf(":%04X", number)))
	return func() { killProcess(p) }
}

func killProcess(p *qemu.Process) {
	_ = p.Signal(syscall.SIGKILL)
	_ = p.Wait() // it was killed, so an error is expected
}

// findHoldingCheck returns the check with which nodegate would hold kubelet, or "".
func (n *kubeletNode) findHoldingCheck(t *testing.T) string {
	t.Helper()
	return n.findChecks(t, "boot", "fail", "unknown")
}

// findChecks returns the checks of a stage that have one of the verdicts.
func (n *kubeletNode) findChecks(t *testing.T, stage string, verdicts ...string) string {
	t.Helper()
	out, err := n.Output(t.Context(), n.nodegate, "check", "--stage", stage, "--format", "json", "--policy", "/etc/policy.hcl")
	var r struct {
		Results []struct{ Name, Verdict, Because string }
	}
	bad := json.Unmarshal([]byte(out), &r)
	require.True(t, bad == nil && len(r.Results) >= 9, "nodegate check: %v, %v\n%s", bad, err, out)
	var names []string
	for _, res := range r.Results {
		if res.Because == "" && slices.Contains(verdicts, res.Verdict) {
			names = append(names, res.Name)
		}
	}
	return strings.Join(names, " ")
}

// startKubelet starts a kubelet, and returns whether it runs and is healthy, and its log. It ends the kubelet in any case.
func (n *kubeletNode) startKubelet(t *testing.T) (runs bool, said string) {
	t.Helper()
	n.starts++
	log := filepath.Join(n.dir, fmt.Sprintf("kubelet%d.log", n.starts))
	p, err := n.Start(log, nil, n.kubelet, n.flags...)
	require.NoError(t, err)
	defer killProcess(p)
	const quiet = 3 * time.Second // a kubelet that fails does so within this time after the last line of its start
	var served time.Time
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		text, _ := os.ReadFile(log) // Start has created it
		select {
		case <-p.Ended():
			return false, string(text)
		default:
		}
		if served.IsZero() && strings.Contains(string(text), "Started kubelet") {
			served = time.Now()
		}
		// After this line kubelet exits, on a busy host seconds later.
		exits := strings.Contains(string(text), "Failed to start ContainerManager")
		if !served.IsZero() && !exits && time.Since(served) > quiet {
			return true, string(text)
		}
	}
	text, _ := os.ReadFile(log)
	t.Fatalf("kubelet neither starts nor exits:\n%s", text)
	return false, ""
}
