package datapath

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// fakeCRI is a runtime with one sandbox at most.
type fakeCRI struct {
	lacks      string            // a method that it does not implement
	hangs      string            // a method that it does not answer
	refuses    map[string]string // method, or "RunPodSandbox on the host network" -> its words
	address    string
	noImage    bool
	stops      bool // another program stops each sandbox at once
	two        bool // each sandbox is listed twice
	started    int
	runs, host bool // there is a sandbox; it is on the host network
}

// field encodes a field of a protobuf message.
func field(n byte, value string) string {
	return string([]byte{n<<3 | 2}) + string(binary.AppendUvarint(nil, uint64(len(value)))) + value
}

// answer returns the response to a call, or the words with which it is refused.
func (f *fakeCRI) answer(method, message string) (response, refusal string) {
	switch method {
	case "Version":
		return field(2, "containerd") + field(3, "1.6.20"), ""
	case "Status":
		return "", "" // hosttest.Machine has the setup
	case "ImageStatus":
		if f.noImage {
			return "", ""
		}
		return field(1, field(1, "sha256:1")), ""
	case f.lacks:
		f.started++
	case "ListImages":
		if f.noImage {
			return field(1, field(1, "sha256:1")), ""
		}
		return field(1, field(1, "sha256:1")+"\x40\x01"), ""
	case "RunPodSandbox":
		f.started++
		f.host = strings.Contains(message, "\x0a\x02\x08\x02")
		if words := f.refuses["RunPodSandbox on the host network"]; f.host && words != "" {
			return "", words
		} else if words := f.refuses[method]; !f.host && words != "" {
			return "", words
		}
		f.runs = true
		return field(1, "one"), ""
	case "PodSandboxStatus":
		status := field(1, "one")
		if f.stops {
			status += "\x18\x01"
		}
		if !f.host {
			status += field(5, field(1, f.address))
		}
		return field(1, status), ""
	case "ListPodSandbox":
		if !f.runs || !strings.Contains(message, "nodegate.probe") {
			return "", ""
		}
		return strings.Repeat(field(1, field(1, "one")), map[bool]int{false: 1, true: 2}[f.two]), ""
	case "RemovePodSandbox":
		if words := f.refuses[method]; words != "" {
			return "", words
		}
		f.runs = false
	}
	return "", f.refuses[method]
}

// serve answers at a new Unix socket.
func (f *fakeCRI) serve(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	server := &http.Server{Protocols: &http.Protocols{}, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			message := make([]byte, r.ContentLength)
			_, _ = r.Body.Read(message)
			_, method, _ := strings.Cut(r.URL.Path, "Service/")
			if method == f.hangs {
				<-r.Context().Done()
				return
			}
			w.Header().Set("Content-Type", "application/grpc")
			response, words := f.answer(method, string(message))
			switch {
			case method == f.lacks:
				w.Header().Set("Grpc-Status", "12")
			case words != "":
				w.Header().Set("Grpc-Status", "2")
				w.Header().Set("Grpc-Message", url.PathEscape(words))
			default:
				w.Header().Set("Trailer", "Grpc-Status")
				_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(response))), response...))
				w.Header().Set("Grpc-Status", "0")
			}
		})}
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return socket
}

// TestSandbox judges the answers of a runtime: a fault of the node, or perhaps the state of its CNI. The packets are real.
func TestSandbox(t *testing.T) {
	hosttest.NeedProgram(t, "ip")
	if !hosttest.OwnNetns(t) {
		return
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	bridge := []host.RuntimeNetwork{{Name: "pods", Plugins: []string{"bridge", "host-local", "portmap"}}}
	calico := []host.RuntimeNetwork{{Name: "k8s-pod-network", Plugins: []string{"calico", "calico-ipam", "portmap"}}}
	flannel := []host.RuntimeNetwork{{Name: "cbr0", Plugins: []string{"flannel", "portmap"}}}
	ready := host.RuntimeSetup{NetworkReady: true, SandboxImage: "pause:3.9", Networks: bridge}
	with := func(change func(*host.RuntimeSetup)) host.RuntimeSetup {
		s := ready
		change(&s)
		return s
	}
	proc := fmt.Sprintf("/proc/%d", os.Getpid())
	crio := func(change func(*host.RuntimeSetup)) host.RuntimeSetup { // it uses no network if it lacks a plugin
		s := host.RuntimeSetup{SandboxImage: "pause:3.10", Networks: bridge, PluginDirs: []string{"/opt/none"}, Default: "runc",
			Handlers: map[string]host.RuntimeHandler{"runc": {BinaryName: "/usr/bin/runc", Monitor: "/usr/bin/conmon"}}}
		change(&s)
		return s
	}
	programs := map[string]string{proc + "/root/proc": "", proc + "/root/usr/bin/runc": "", proc + "/root/usr/bin/conmon": ""}
	isReady := func(s *host.RuntimeSetup) { s.NetworkReady, s.PluginDirs = true, nil }
	const noPod = `failed to setup network for sandbox "ID": plugin type="calico" failed (add): pods "nodegate-probe" not found`
	for _, c := range []struct {
		what  string
		cri   fakeCRI
		setup host.RuntimeSetup
		files map[string]string
		name  string // of the runtime, in place of containerd 1.6.20
		want  string // what begins the summary, "skipped", "error", or the failed step, then a part of the remedy or words
		runs  int    // sandboxes started
		minor bool   // it blocks nothing
	}{
		{what: "healthy", setup: ready, want: "a Pod sandbox started at 127.0.0.1, answered the node", runs: 1},
		{what: "no network yet", setup: with(func(s *host.RuntimeSetup) { s.NetworkReady, s.Networks = false, nil }),
			want: "a Pod sandbox started on the host network", runs: 1},
		{what: "no image", cri: fakeCRI{noImage: true}, setup: ready, want: "image: run `ctr -n k8s.io images pull pause:3.9`"},
		{what: "containerd 2", setup: with(func(s *host.RuntimeSetup) { s.SandboxImage = "" }), want: "a Pod sandbox started at", runs: 1},
		{what: "containerd 2, no image", cri: fakeCRI{noImage: true}, setup: with(func(s *host.RuntimeSetup) { s.SandboxImage = "" }),
			want: "image: run `ctr -n k8s.io images pull NAME`"},
		{what: "containerd 2, no image of this name", cri: fakeCRI{noImage: true}, setup: with(func(s *host.RuntimeSetup) { s.SandboxImage = "" }),
			files: map[string]string{containerdConfig: "version = 3\n[plugins.'io.containerd.cri.v1.images'.pinned_images]\n  sandbox = 'pause:3.10'\n"},
			want:  "image: run `ctr -n k8s.io images pull pause:3.10`"},
		{what: "no image and no BinaryName", cri: fakeCRI{noImage: true}, setup: with(func(s *host.RuntimeSetup) {
			s.Default, s.Handlers = "nvidia", map[string]host.RuntimeHandler{"nvidia": {BinaryName: "/usr/bin/nvidia-container-runtime"}}
		}), files: map[string]string{proc + "/root/proc": ""}, want: "start: install /usr/bin/nvidia-container-runtime"},
		{what: "no plugin in the runtime's directory", setup: with(func(s *host.RuntimeSetup) { s.PluginDirs = []string{"/opt/cni/bin"} }),
			files: map[string]string{proc + "/root/proc": "", proc + "/root/opt/cni/bin/bridge": "", proc + "/root/opt/cni/bin/portmap": "",
				"/usr/lib/cni/host-local": ""},
			want: "start: run `cp /usr/lib/cni/host-local /opt/cni/bin/`"},
		{what: "all plugins are in another directory", setup: with(func(s *host.RuntimeSetup) { s.PluginDirs = []string{"/usr/lib/cni"} }),
			files: map[string]string{proc + "/root/proc": "", "/opt/cni/bin/bridge": "", "/opt/cni/bin/portmap": "", "/opt/cni/bin/host-local": "",
				containerdConfig: "version = 3\n"},
			want: "start: the network's plugins are in /opt/cni/bin: set bin_dir = \"/opt/cni/bin\""},
		{what: "no plugin, which Calico's own Pod brings", setup: with(func(s *host.RuntimeSetup) {
			s.Networks, s.PluginDirs = calico, []string{"/opt/cni/bin"}
		}), files: map[string]string{proc + "/root/proc": "", "/usr/lib/cni/portmap": ""},
			want: "start: start kubelet: the network's own Pod installs the plugin; if it does not, install the CNI plugin calico into", runs: 1, minor: true},
		{what: "no plugin, and Calico's is in another directory", setup: with(func(s *host.RuntimeSetup) {
			s.Networks, s.PluginDirs = calico, []string{"/usr/lib/cni"}
		}), files: map[string]string{proc + "/root/proc": "", "/opt/cni/bin/calico": "", "/opt/cni/bin/calico-ipam": "", "/opt/cni/bin/portmap": ""},
			want: "start: the network's plugins are in /opt/cni/bin: set bin_dir"},
		{what: "flannel's Pod brings no bridge", setup: with(func(s *host.RuntimeSetup) {
			s.Networks, s.PluginDirs = flannel, []string{"/opt/cni/bin"}
		}), files: map[string]string{proc + "/root/proc": "", proc + "/root/opt/cni/bin/flannel": ""}, want: "start: install the CNI plugin portmap ("},
		{what: "the runtime's root is not known", setup: with(func(s *host.RuntimeSetup) { s.PluginDirs = []string{"/opt/cni/bin"} }),
			want: "a Pod sandbox started at", runs: 1},
		{what: "the runtime does not find a plugin", setup: ready, cri: fakeCRI{refuses: map[string]string{"RunPodSandbox": `failed to setup ` +
			`network for sandbox "` + strings.Repeat("0a", 32) + `": plugin type="flannel" failed (add): failed to find plugin "bridge" in path [/opt/cni/bin]`}},
			want: "start: install the CNI plugin bridge", runs: 1},
		{what: "runc is gone", setup: ready, cri: fakeCRI{refuses: map[string]string{"RunPodSandbox": `OCI runtime create failed: exec: "runc": ` +
			`executable file not found in $PATH: unknown`}}, want: "start: install runc", runs: 1},
		{what: "an error that is not in the table", setup: ready, cri: fakeCRI{refuses: map[string]string{"RunPodSandbox": "50% broken\nanyway"}},
			want: "start: correct what the runtime reports", runs: 1},
		{what: "an old runtime after an upgrade", setup: ready, cri: fakeCRI{refuses: map[string]string{"RunPodSandbox": "unsupported shim version"}},
			files: map[string]string{proc + "/exe": "-> /usr/bin/containerd (deleted)"}, want: "start: run `systemctl restart containerd`", runs: 1},
		{what: "a program of another machine", setup: ready, cri: fakeCRI{refuses: map[string]string{"RunPodSandbox": `failed to setup network: ` +
			`plugin type="bridge" failed (add): fork/exec /opt/cni/bin/bridge: exec format error`}},
			want: "start: install /opt/cni/bin/bridge for this machine", runs: 1},
		{what: "versions of CNI", setup: ready, cri: fakeCRI{refuses: map[string]string{"RunPodSandbox": `failed to setup network: ` +
			`incompatible CNI versions; config is "1.1.0", plugin supports ["0.1.0" "1.0.0"]`}}, want: "start: set cniVersion", runs: 1},
		{what: "a bridge's own fault", setup: ready, cri: fakeCRI{refuses: map[string]string{"RunPodSandbox": `failed to setup network: ` +
			`plugin type="bridge" failed (add): failed to allocate for range 0: no IP addresses available in range set: 10.0.0.1-10.0.0.2`}},
			want: "start: the addresses of Pods that are gone", runs: 1},
		{what: "Calico wants a Pod of the API server", setup: with(func(s *host.RuntimeSetup) { s.Networks = calico }),
			cri: fakeCRI{refuses: map[string]string{"RunPodSandbox": noPod}}, want: "skipped: a sandbox starts on the host network", runs: 2},
		{what: "Calico, and runc is gone", setup: with(func(s *host.RuntimeSetup) { s.Networks = calico }), cri: fakeCRI{refuses: map[string]string{
			"RunPodSandbox": noPod, "RunPodSandbox on the host network": `exec: "runc": executable file not found in $PATH`}},
			want: "start: install runc", runs: 2},
		{what: "flannel before its daemon", setup: with(func(s *host.RuntimeSetup) { s.Networks = flannel }),
			cri: fakeCRI{refuses: map[string]string{"RunPodSandbox": `failed to setup network for sandbox "ID": plugin type="flannel" failed (add): ` +
				`loadFlannelSubnetEnv failed: open /run/flannel/subnet.env: no such file or directory`}}, want: "skipped: a sandbox starts on", runs: 2},
		{what: "no answer", setup: ready, cri: fakeCRI{address: "192.0.2.9"}, want: "packet: run `ip route get 192.0.2.9`", runs: 1},
		{what: "no answer, and a CNI with a policy of its own", setup: with(func(s *host.RuntimeSetup) { s.Networks = calico }),
			cri: fakeCRI{address: "192.0.2.9"}, want: "skipped: a sandbox starts at 192.0.2.9", runs: 1},
		{what: "stopped by kubelet, twice", setup: ready, cri: fakeCRI{stops: true}, want: "error: another program", runs: 2},
		{what: "cannot be removed", setup: ready, cri: fakeCRI{refuses: map[string]string{"RemovePodSandbox": "busy"}},
			want: "remove: kubelet or the next probe removes it; if it stays, correct what the runtime reports", runs: 1, minor: true},
		{what: "a leftover that cannot be removed", setup: ready, cri: fakeCRI{runs: true, refuses: map[string]string{"RemovePodSandbox": "busy"}},
			want: "remove: kubelet or the next probe removes it", runs: 1, minor: true},
		{what: "two leftovers that cannot be removed", setup: ready, cri: fakeCRI{runs: true, two: true, refuses: map[string]string{
			"RemovePodSandbox": "busy"}}, want: "remove: kubelet or the next probe removes it", minor: true},
		{what: "a leftover that cannot be removed, and runc is gone", setup: ready, cri: fakeCRI{runs: true, refuses: map[string]string{
			"RemovePodSandbox": "busy", "RunPodSandbox on the host network": `exec: "runc": executable file not found in $PATH`}},
			want: "start: install runc", runs: 1},
		{what: "a leftover, and the node's own plugin cannot run", setup: ready, cri: fakeCRI{runs: true, refuses: map[string]string{
			"RemovePodSandbox": `plugin type="bridge" failed (delete): fork/exec /opt/cni/bin/bridge: exec format error`}},
			want: "start: install /opt/cni/bin/bridge for this machine"},
		{what: "a leftover that Calico cannot remove", setup: with(func(s *host.RuntimeSetup) { s.Networks = calico }), cri: fakeCRI{runs: true,
			refuses: map[string]string{"RemovePodSandbox": `plugin type="calico" failed (delete): stat /var/lib/calico/nodename: permission denied`}},
			want: "remove: kubelet or the next probe removes it", runs: 1, minor: true},
		{what: "a leftover", setup: ready, cri: fakeCRI{runs: true}, want: "a Pod sandbox started at", runs: 1},
		{what: "CRI-O", name: "cri-o 1.34.0", setup: crio(isReady), files: programs, want: "a Pod sandbox started at", runs: 1},
		{what: "CRI-O does not find a plugin", name: "cri-o 1.34.0", setup: crio(func(*host.RuntimeSetup) {}), files: map[string]string{
			proc + "/root/proc": "", "/opt/cni/bin/bridge": "", "/opt/cni/bin/portmap": "", "/opt/cni/bin/host-local": ""},
			want: `start: the network's plugins are in /opt/cni/bin: set plugin_dirs = ["/opt/cni/bin"] in [crio.network] of /etc/crio/crio.conf.d`},
		{what: "CRI-O before Calico's daemon", name: "cri-o 1.34.0", setup: crio(func(s *host.RuntimeSetup) { s.Networks = calico }), files: programs,
			want: "a Pod sandbox started on the host network", runs: 1},
		{what: "CRI-O, no image", name: "cri-o 1.34.0", setup: crio(isReady), files: programs, cri: fakeCRI{noImage: true},
			want: "image: run `crictl pull pause:3.10`"},
		{what: "CRI-O, conmon is gone", name: "cri-o 1.34.0", setup: crio(isReady), files: map[string]string{
			proc + "/root/proc": "", proc + "/root/usr/bin/runc": ""}, want: "start: install /usr/bin/conmon, or correct runtime_path"},
		{what: "RunPodSandbox does not return", setup: ready, cri: fakeCRI{hangs: "RunPodSandbox"}, want: "error: querying the runtime at "},
		{what: "Calico does not return", setup: with(func(s *host.RuntimeSetup) { s.Networks = calico }), cri: fakeCRI{hangs: "RunPodSandbox"},
			want: "skipped: the CNI plugin calico did not return in time"},
		{what: "the image service does not return", setup: ready, cri: fakeCRI{hangs: "ImageStatus"}, want: "error: querying the runtime at "},
		{what: "a sandbox stays that is never removed", setup: ready, cri: fakeCRI{hangs: "RemovePodSandbox"},
			want: "remove: kubelet or the next probe removes it", runs: 1, minor: true},
		{what: "no RunPodSandbox", setup: ready, cri: fakeCRI{lacks: "RunPodSandbox"}, want: "skipped: the runtime does not serve RunPodSandbox", runs: 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			c.cri.address = cmp.Or(c.cri.address, "127.0.0.1")
			leftover, socket := c.cri.runs, c.cri.serve(t)
			m := &hosttest.Machine{Files: c.files, Runtime: map[string]string{"v1 " + socket: cmp.Or(c.name, "containerd 1.6.20")},
				Setups: map[string]host.RuntimeSetup{socket: c.setup}}
			o := SandboxOptions{Socket: socket}
			if c.cri.hangs != "" {
				o.Timeout = time.Second
			}
			r, err := Sandbox(t.Context(), m.Host(), o)
			got := r.Summary
			switch {
			case err != nil:
				got = "error: " + strings.TrimPrefix(err.Error(), "probing a Pod sandbox: ")
			case r.Skipped != "":
				got = "skipped: " + r.Skipped
			case !r.Pass:
				got = r.Failed + ": " + r.Remedy
			}
			if minor := r.Failed != "" && r.Proof().Minor; minor != (c.minor || r.Failed == FailedImage) {
				t.Errorf("%+v", r.Proof())
			}
			if !strings.HasPrefix(got, c.want) || c.cri.started != c.runs {
				t.Errorf("%d sandboxes, %q (%+v); want %d, %q", c.cri.started, got, r, c.runs, c.want)
			}
			if stays := c.cri.refuses["RemovePodSandbox"] != "" || c.cri.hangs == "RemovePodSandbox"; c.cri.runs != stays || leftover && r.Pass && len(r.Removed) != 1 {
				t.Errorf("sandboxes that stay: %t, removed %v", c.cri.runs, r.Removed)
			}
		})
	}
	m := &hosttest.Machine{}
	if r, err := Sandbox(t.Context(), m.Host(), SandboxOptions{}); err != nil || !strings.HasPrefix(r.Skipped, "no runtime serves CRI v1 at /run/containerd") {
		t.Errorf("without a runtime: %+v, %v", r, err)
	}
}

// TestCannotRun: only a plugin that no Pod brings keeps a sandbox because the node is broken.
func TestCannotRun(t *testing.T) {
	for words, want := range map[string]bool{
		`plugin type="bridge" failed (delete): fork/exec /opt/cni/bin/bridge: permission denied`:             true,
		`plugin type="bridge" failed (delete): incompatible CNI versions; config is "1.1.0"`:                 true,
		`plugin type="bridge" failed (delete): failed to find plugin "bridge" in path [/opt/cni/bin]`:        true,
		`failed to find plugin "host-local" in path [/opt/cni/bin]`:                                          true,
		`plugin type="bridge" failed (delete): running [/usr/sbin/iptables -t nat -D CNI-1]: exit status 4`:  false,
		`plugin type="flannel" failed (delete): fork/exec /opt/cni/bin/flannel: exec format error`:           false,
		`plugin type="calico" failed (delete): error getting ClusterInformation: connection is unauthorized`: false,
		"busy": false,
	} {
		p := sandboxProbe{h: (&hosttest.Machine{}).Host(), setup: host.RuntimeSetup{Networks: []host.RuntimeNetwork{{Plugins: []string{"bridge", "host-local"}}}}}
		assert.Equal(t, p.cannotRun(words), want, "%s", words)
		p.setup.Networks[0].Plugins[0] = "calico" // whose Pod brings the others too
		assert.Equal(t, p.cannotRun(words), false, "beside Calico: %s", words)
	}
}
