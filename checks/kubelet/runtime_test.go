package kubelet_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

func TestRuntime(t *testing.T) {
	const socket = "/run/containerd/containerd.sock"
	node := func(runtime map[string]string, kubelet string) *hosttest.Machine {
		m := checkstest.Node(map[string]string{"/var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix://" + socket + "\n"}, nil)
		m.Runtime, m.Version = runtime, map[string]string{"kubelet": kubelet}
		return m
	}
	docker := func(kubelet string) *hosttest.Machine { // Docker's package ships containerd without CRI
		m := node(map[string]string{"none " + socket: ""}, kubelet)
		m.Files["/var/lib/kubelet/config.yaml"], m.Files[socket] = "cgroupDriver: systemd\n", ""
		return m
	}
	unnamed := func(unit, kubelet string) *hosttest.Machine {
		m := node(nil, kubelet)
		m.Files["/var/lib/kubelet/config.yaml"] = "cgroupDriver: systemd\n"
		m.Files["/usr/lib/systemd/system/kubelet.service"] = "[Service]\nExecStart=" + unit + "\n"
		return m
	}
	const command = "/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml"
	const noSocket = "\nskipped\nskipped: kubelet's configuration names no runtime, and " + socket + " does not exist"
	short := node(map[string]string{"v1 " + socket: "containerd 1.6.20"}, "")
	short.Files["/var/lib/kubelet/config.yaml"] = "containerRuntimeEndpoint: unix:" + socket + "\n"
	images := func(endpoint, serves string) *hosttest.Machine {
		m := node(map[string]string{"v1 " + socket: "containerd 1.6.20", serves + " /run/images.sock": ""}, "")
		m.Files["/var/lib/kubelet/config.yaml"] += "imageServiceEndpoint: " + endpoint + "\n"
		return m
	}
	tcp := node(nil, "")
	tcp.Files["/var/lib/kubelet/config.yaml"] = "containerRuntimeEndpoint: tcp://127.0.0.1:1\n"
	const both = "\nevidence: /var/lib/kubelet/config.yaml: containerRuntimeEndpoint: unix:///run/containerd/containerd.sock" +
		"\nevidence: /run/containerd/containerd.sock: containerd 1.6.20\nevidence: /var/lib/kubelet/config.yaml: imageServiceEndpoint: "
	checkstest.RunOne(t, "kubelet.runtime", checks.Boot, []checkstest.Case{
		{What: "an image service", Node: images("unix:///run/images.sock", host.ImageService),
			Want: "\npass\nwant: CRI v1\ngot: CRI v1, containerd 1.6.20" + both + "unix:///run/images.sock"},
		{What: "no image service", Node: images("unix:///run/none.sock", host.ImageService), Want: "\nfail\nwant: CRI v1\ngot: no image service at " +
			"/run/none.sock" + both + "unix:///run/none.sock\nevidence: /run/none.sock: connect /run/none.sock: no such file or directory" +
			"\nremedy: start the service that listens on /run/none.sock, or remove imageServiceEndpoint"},
		{What: "a socket without images", Node: images("unix:///run/images.sock", "v1"), Want: "\nfail\nwant: CRI v1\ngot: /run/images.sock does not " +
			"serve CRI v1 images" + both + "unix:///run/images.sock\nevidence: /run/images.sock: no runtime.v1.ImageService" +
			"\nremedy: correct imageServiceEndpoint, or remove it"},
		{What: "TCP", Node: tcp, Want: "\nfail\nwant: CRI v1\ngot: containerRuntimeEndpoint has the scheme tcp" +
			"\nevidence: /var/lib/kubelet/config.yaml: containerRuntimeEndpoint: tcp://127.0.0.1:1" +
			"\nremedy: set containerRuntimeEndpoint to unix:///PATH: kubelet connects to Unix sockets only"},
		{What: "a current containerd, by a URL without a host", Node: short, Want: `
pass
want: CRI v1
got: CRI v1, containerd 1.6.20
evidence: /var/lib/kubelet/config.yaml: containerRuntimeEndpoint: unix:/run/containerd/containerd.sock
evidence: /run/containerd/containerd.sock: containerd 1.6.20`},
		{What: "no kubelet yet", Node: checkstest.Node(nil, nil), Want: `
skipped
skipped: no kubelet configuration found`},
		{What: "a current containerd", Node: node(map[string]string{"v1 " + socket: "containerd 1.6.20"}, ""), Want: `
pass
want: CRI v1
got: CRI v1, containerd 1.6.20
evidence: /var/lib/kubelet/config.yaml: containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
evidence: /run/containerd/containerd.sock: containerd 1.6.20`},
		{What: "Debian 11", Node: node(map[string]string{"v1alpha2 " + socket: "containerd 1.4.13"}, "Kubernetes v1.34.4"), Want: `
fail
want: CRI v1
got: CRI v1alpha2 only: containerd 1.4.13
evidence: /var/lib/kubelet/config.yaml: containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
evidence: /run/containerd/containerd.sock: containerd 1.4.13, CRI v1alpha2 only
remedy: install containerd 1.6 or CRI-O 1.20 or later`},
		{What: "Debian 11, and an old kubelet", Node: node(map[string]string{"v1alpha2 " + socket: "containerd 1.4.13"},
			"Kubernetes v1.22.1"), Want: `
pass
want: CRI v1
got: CRI v1alpha2, which kubelet before 1.26 uses
evidence: /var/lib/kubelet/config.yaml: containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
evidence: /run/containerd/containerd.sock: containerd 1.4.13, CRI v1alpha2 only`},
		{What: "plugin disabled", Node: node(map[string]string{"none " + socket: ""}, ""), Want: `
fail
want: CRI v1
got: the runtime does not serve CRI
evidence: /var/lib/kubelet/config.yaml: containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
evidence: /run/containerd/containerd.sock: neither runtime.v1 nor runtime.v1alpha2
remedy: run ` + "`ctr plugins ls -d id==cri`" + `, which shows why containerd's CRI plugin is off: usually "cri" is in disabled_plugins of /etc/containerd/config.toml, or registry mirrors are set beside config_path, of which one must go; then run ` + "`systemctl restart containerd`"},
		{What: "Docker's containerd, and a kubelet that uses Docker", Node: docker("Kubernetes v1.23.17"), Want: `
skipped
skipped: without a configured runtime, kubelet before 1.24 uses Docker`},
		{What: "Docker's containerd, and a kubelet that requires CRI", Node: docker("Kubernetes v1.24.0"), Want: `
fail
want: CRI v1
got: the runtime does not serve CRI
evidence: /run/containerd/containerd.sock: neither runtime.v1 nor runtime.v1alpha2
remedy: run ` + "`ctr plugins ls -d id==cri`" + `, which shows why containerd's CRI plugin is off: usually "cri" is in disabled_plugins of /etc/containerd/config.toml, or registry mirrors are set beside config_path, of which one must go; then run ` + "`systemctl restart containerd`"},
		{What: "not started", Node: node(nil, ""), Want: `
fail
want: CRI v1
got: no answer at /run/containerd/containerd.sock
evidence: /var/lib/kubelet/config.yaml: containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
evidence: /run/containerd/containerd.sock: connect /run/containerd/containerd.sock: no such file or directory
remedy: start the container runtime (` + "`systemctl status containerd crio`" + ` shows why it is down), or correct containerRuntimeEndpoint`},
		{What: "not started, and kubelet uses its default", Node: unnamed(command, "Kubernetes v1.37.2"), Want: `
fail
want: CRI v1
got: no answer at /run/containerd/containerd.sock
evidence: /run/containerd/containerd.sock: connect /run/containerd/containerd.sock: no such file or directory
remedy: start the container runtime (` + "`systemctl status containerd crio`" + ` shows why it is down), or correct containerRuntimeEndpoint`},
		{What: "no endpoint, and a script that may set one", Node: unnamed("/opt/start", "Kubernetes v1.37.2"), Want: noSocket},
		{What: "no endpoint, and a kubelet without a version", Node: unnamed(command, ""), Want: noSocket},
		{What: "no endpoint, before kubeadm join sets CRI-O's", Node: unnamed("/usr/bin/kubelet --config=/none.yaml --kubeconfig=/none.conf "+
			"--bootstrap-kubeconfig=/none.boot", "Kubernetes v1.37.2"), Want: `
skipped
skipped: this node has not joined a cluster: kubeadm join writes kubelet's files`},
		{What: "no endpoint, no containerd, and Docker inside kubelet", Node: unnamed(command, "Kubernetes v1.23.17"), Want: `
skipped
skipped: without a configured runtime, kubelet before 1.24 uses Docker`},
	})
}

// TestRealContainerd queries a real containerd, with and without its CRI plugin.
func TestRealContainerd(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "containerd")
	h, err := host.Open("/")
	require.NoError(t, err)
	defer h.Close()
	if said := containerd(t, h, ""); said == "" {
		t.Error("containerd reports no version")
	}
	containerd(t, h, `disabled_plugins = ["io.containerd.grpc.v1.cri"]`)
	containerd(t, h, `[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true`)
}

// containerd starts a containerd with its own directories, and returns the version that it reports.
func containerd(t *testing.T, h *host.Host, settings string) string {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.toml")
	require.NoError(t, os.WriteFile(config, []byte("version = 2\n"+settings+"\n"), 0o600))
	socket := filepath.Join(dir, "s")
	cmd := exec.Command("containerd", "--config", config, "--root", dir+"/root", "--state", dir+"/state", "--address", socket)
	require.NoError(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var said string
	var err error
	disabled := strings.HasPrefix(settings, "disabled")
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		said, err = h.Runtimes.CRIVersion(t.Context(), socket, "v1")
		if err == nil || errors.Is(err, errors.ErrUnsupported) && disabled {
			break
		}
	}
	if disabled != errors.Is(err, errors.ErrUnsupported) || !disabled && err != nil {
		t.Errorf("containerd with %q: %q, %v", settings, said, err)
	}
	if err == nil {
		want := "cgroupfs"
		if strings.Contains(settings, "SystemdCgroup") {
			want = "systemd"
		}
		if d, err := h.Runtimes.CgroupDriver(t.Context(), socket); err != nil || d.Driver != want {
			t.Errorf("containerd with %q has the driver %+v, %v; want %s", settings, d, err, want)
		}
	}
	return said
}
