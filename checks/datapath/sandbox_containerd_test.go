package datapath

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

const (
	debianPlugins = "/usr/lib/cni"
	pauseImage    = "nodegate.test/pause:1"
	probeSocket   = "NODEGATE_TEST_PROBE_SOCKET" // set in a process that only probes, and is killed
)

// containerd is a real containerd with directories, mounts and processes of its own, in this network namespace. Its first process is the
// first of a PID namespace: everything ends with it.
type containerd struct {
	image                               []byte // pauseImage, as pauseTar makes it
	dir, binDir, path, program, handler string
	noNetwork, noImage                  bool
	network, broken                     string // JSON, in place of a bridge with an address; a file of networks that is not JSON, before the good one
}

const bridgeNetwork = `{"cniVersion": "0.4.0", "name": "pods", "plugins": [
	{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": {"type": "host-local", "dataDir": "DIR/ipam",
	 "ranges": [[{"subnet": "10.244.7.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
	{"type": "portmap", "capabilities": {"portMappings": true}}]}`

func (c *containerd) start(t *testing.T) (socket string) {
	t.Helper()
	c.dir = t.TempDir()
	socket = c.dir + "/s"
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(c.dir+"/"+name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c.dir+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	handler := cmp.Or(c.handler, `runtime_type = "io.containerd.runc.v2"`)
	const cri = `plugins."io.containerd.grpc.v1.cri"`
	write("config.toml", fmt.Sprintf("version = 2\n[%s]\nsandbox_image = %q\nrestrict_oom_score_adj = true\nnetns_mounts_under_state_dir = true\n"+
		"[%[1]s.cni]\nbin_dir = %[3]q\nconf_dir = \"%[4]s/net.d\"\n[%[1]s.containerd.runtimes.runc]\n%[5]s\n"+
		"[plugins.\"io.containerd.internal.v1.opt\"]\npath = \"%[4]s/opt\"\n", cri, pauseImage, cmp.Or(c.binDir, debianPlugins), c.dir, handler))
	write("net.d/README", "")
	if !c.noNetwork {
		write("net.d/10-pods.conflist", strings.ReplaceAll(cmp.Or(c.network, bridgeNetwork), "DIR", c.dir))
	}
	if c.broken != "" {
		write("net.d/"+c.broken, "")
	}
	write("pause.tar", string(c.image))
	log, err := os.Create(c.dir + "/log")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `mount -t proc proc /proc && mount -t tmpfs none /run && export PATH="$1" && exec "$0" --config "$2/config.toml" `+
		`--root "$2/root" --state "$2/state" --address "$2/s"`, cmp.Or(c.program, "/usr/bin/containerd"),
		cmp.Or(c.path, os.Getenv("PATH")+":/usr/sbin"), c.dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // Pdeathsig is sent when this thread ends, and probes end threads
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(c.dir + "/log"); err == nil && t.Failed() {
			t.Logf("%s", text[max(0, len(text)-3000):])
		}
	})
	ctr := func(args ...string) ([]byte, error) {
		return exec.Command("ctr", append([]string{"-a", socket, "-n", "k8s.io"}, args...)...).CombinedOutput()
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		out, err := ctr("version")
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("containerd does not start: %v %s", err, out)
		}
	}
	if out, err := ctr("images", "import", c.dir+"/pause.tar"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if c.noImage {
		if out, err := ctr("images", "rm", "--sync", pauseImage); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	return socket
}

// pauseTar returns an image in Docker's format whose only program waits for ever.
func pauseTar(t *testing.T) []byte {
	t.Helper()
	pack := func(files ...[2]string) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, f := range files {
			if err := w.WriteHeader(&tar.Header{Name: f[0], Mode: 0o755, Size: int64(len(f[1]))}); err != nil {
				t.Fatal(err)
			}
			_, _ = w.Write([]byte(f[1]))
		}
		_ = w.Close()
		return b.Bytes()
	}
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/pause.go", []byte("package main\n\nfunc main() { select {} }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", dir+"/pause", dir+"/pause.go")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	program, err := os.ReadFile(dir + "/pause")
	if err != nil {
		t.Fatal(err)
	}
	layer := pack([2]string{"pause", string(program)})
	config := fmt.Sprintf(`{"architecture": "amd64", "os": "linux", "config": {"Entrypoint": ["/pause"]}, "rootfs": {"type": "layers", "diff_ids": `+
		`["sha256:%x"]}}`, sha256.Sum256(layer))
	manifest, _ := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{pauseImage}, "Layers": []string{"layer.tar"}}})
	return pack([2]string{"config.json", config}, [2]string{"layer.tar", string(layer)}, [2]string{"manifest.json", string(manifest)})
}

// TestSandboxContainerd: a real containerd that cannot start a Pod is named by its own words, a healthy one passes, and nothing stays.
func TestSandboxContainerd(t *testing.T) {
	for _, program := range []string{"containerd", "ctr", "ip", "go", debianPlugins + "/bridge"} {
		hosttest.NeedProgram(t, program)
	}
	if !hosttest.OwnNetns(t) {
		return
	}
	run(t, "ip", "link", "set", "lo", "up")
	image := pauseTar(t)
	without := func(plugin string) string {
		dir := t.TempDir()
		plugins, err := filepath.Glob(debianPlugins + "/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range plugins {
			if filepath.Base(p) != plugin {
				run(t, "cp", p, dir)
			}
		}
		return dir
	}
	copied := t.TempDir() + "/containerd"
	run(t, "cp", "/usr/bin/containerd", copied)
	const notFound = `failed to find plugin `
	calico := without("")
	write := func(name, text string) {
		if err := os.WriteFile(calico+"/"+name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("calico", `#!/bin/sh
[ "$CNI_COMMAND" = VERSION ] && exec echo '{"cniVersion": "0.4.0", "supportedVersions": ["0.4.0"]}'
[ "$CNI_COMMAND" = DEL ] && [ -e "$CNI_PATH/up" ] && exit
echo '{"code": 99, "msg": "error getting ClusterInformation: connection is unauthorized: Unauthorized"}'; exit 1`)
	cut := without("")
	run(t, "truncate", "-s", "0", cut+"/bridge")
	closed := without("")
	run(t, "chmod", "644", closed+"/bridge")
	const calicoNetwork = `{"cniVersion": "0.4.0", "name": "k8s-pod-network", "plugins": [{"type": "calico"}, {"type": "portmap"}]}`
	for _, c := range []struct {
		what         string
		node         containerd
		before       []string // a command
		failed, want string   // the step, and a part of the result
		remedy       string
		minor        bool   // it blocks nothing
		pods         int    // on cni0
		stays        bool   // neither can the runtime remove it
		again        string // the step that fails in a second probe; the third removes what is left
	}{
		{what: "healthy", want: "started at 10.244.7.2, answered the node"},
		{what: "no network yet", node: containerd{noNetwork: true}, want: "started on the host network"},
		{what: "no image", node: containerd{noImage: true}, failed: "image", want: pauseImage, remedy: "ctr -n k8s.io images pull " + pauseImage},
		{what: "no directory of plugins", node: containerd{binDir: "/opt/none"}, failed: "start", want: notFound + `"loopback" in path [/opt/none]`,
			remedy: `set bin_dir = "/usr/lib/cni"`},
		{what: "no loopback", node: containerd{binDir: without("loopback")}, failed: "start", want: notFound + `"loopback"`, remedy: "bin_dir"},
		{what: "no portmap", node: containerd{binDir: without("portmap")}, failed: "start", want: notFound + `"portmap"`, remedy: "bin_dir"},
		{what: "no host-local", node: containerd{binDir: without("host-local")}, failed: "start", want: notFound + `"host-local"`, remedy: "bin_dir"},
		{what: "no runc", node: containerd{path: "/none"}, failed: "start", want: `exec: "runc": executable file not found`, remedy: "install runc"},
		{what: "no BinaryName", node: containerd{handler: "runtime_type = \"io.containerd.runc.v2\"\n" +
			"[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\nBinaryName = \"/usr/local/bin/nvidia-container-runtime\""},
			failed: "start", want: "fork/exec /usr/local/bin/nvidia-container-runtime", remedy: "install /usr/local/bin/nvidia-container-runtime"},
		{what: "no shim", node: containerd{handler: `runtime_type = "io.containerd.kata.v2"`}, failed: "start",
			want: `binary not installed "containerd-shim-kata-v2"`, remedy: "install containerd-shim-kata-v2"},
		{what: "no address left", node: containerd{network: strings.ReplaceAll(bridgeNetwork, `"10.244.7.0/24"`,
			`"10.244.7.0/24", "rangeStart": "10.244.7.9", "rangeEnd": "10.244.7.9", "gateway": "10.244.7.9"`)},
			failed: "start", want: "no IP addresses available in range set", remedy: "/var/lib/cni/networks"},
		{what: "the bridge has another range's address", before: []string{"ip", "address", "add", "10.99.0.1/24", "dev", "cni0"}, failed: "start",
			want: "already has an IP address different from", remedy: "ip link delete cni0"},
		{what: "the bridge has another range's address, and a Pod", pods: 1, before: []string{"ip", "address", "add", "10.99.0.1/24", "dev", "cni0"},
			failed: "start", want: "already has an IP address different from", remedy: "run `kubectl drain NODE"},
		{what: "an empty network before the good one", node: containerd{broken: "05-x.conflist"}, failed: "start", minor: true,
			want: "/net.d/05-x.conflist: error parsing configuration list", remedy: "/net.d/05-x.conflist, or remove it"},
		{what: "an empty plugin", stays: true, node: containerd{binDir: cut}, failed: "start", want: "exec format error", remedy: "install " + cut + "/bridge"},
		{what: "a plugin without permission", node: containerd{binDir: closed}, failed: "start", want: "permission denied",
			remedy: "run `chmod 755 " + closed + "/bridge`"},
		{what: "a network of a newer version", stays: true, node: containerd{network: strings.Replace(bridgeNetwork, "0.4.0", "9.9.9", 1)},
			failed: "start", want: "9.9.9", remedy: "set cniVersion"},
		{what: "Calico without its API server", node: containerd{binDir: calico, network: calicoNetwork}, want: "the CNI plugin calico does not serve",
			again: FailedRemove},
		{what: "Calico's program is missing", node: containerd{network: calicoNetwork}, failed: "start", minor: true,
			want: `failed to find plugin "calico"`, remedy: "start kubelet: the network's own Pod installs the plugin"},
		{what: "no route to Pods", node: containerd{network: strings.ReplaceAll(bridgeNetwork, `"isGateway": true`, `"isGateway": false`)},
			failed: "packet", want: "does not answer the node", remedy: "ip route get 10.244.7.2"},
		{what: "an old daemon after an upgrade", node: containerd{program: copied}, before: []string{"rm", copied}, want: "started at 10.244.7.2"},
	} {
		t.Run(c.what, func(t *testing.T) {
			if c.before != nil && c.before[0] == "ip" {
				run(t, "ip", "link", "add", "cni0", "type", "bridge")
			}
			for range c.pods {
				run(t, "ip", "link", "add", "pod0", "master", "cni0", "type", "veth", "peer", "name", "pod1")
			}
			c.node.image = image
			socket := c.node.start(t)
			if c.before != nil {
				run(t, c.before...)
			}
			r := probeContainerd(t, socket)
			if r.Pass != (c.failed == "" && c.again == "") || r.Failed != c.failed || !strings.Contains(r.Summary, c.want) || !strings.Contains(r.Remedy, c.remedy) {
				t.Errorf("%+v", r)
			}
			if replaced := r.Stale == copied; replaced != (c.node.program != "") || !r.Proof().Pass && r.Proof().Skip == "" &&
				r.Proof().Minor != (replaced || c.minor || c.failed == FailedImage) {
				t.Errorf("replaced %q, %+v", r.Stale, r.Proof())
			}
			if c.again != "" {
				if r := probeContainerd(t, socket); r.Failed != c.again || !r.Proof().Minor {
					t.Errorf("in a second probe: %+v", r)
				}
				write("up", "")
				if r := probeContainerd(t, socket); len(r.Removed) != 1 {
					t.Errorf("in a third probe: %+v", r)
				}
			}
			if c.failed == FailedStart { // a sandbox that stays must not hide the fault
				if r := probeContainerd(t, socket); r.Failed != FailedStart || r.Proof().Minor != c.minor {
					t.Errorf("in a second probe: %+v", r)
				}
			}
			obey(t, socket, r.Remedy, c.pods)
			if !c.stays {
				c.node.checkEmpty(t, socket)
			}
		})
	}
	t.Run("killed", func(t *testing.T) {
		c := containerd{image: image}
		socket := c.start(t)
		began := time.Now()
		probeContainerd(t, socket)
		whole, removed := time.Since(began), 0
		const moments = 10
		for i := range moments {
			cmd := exec.Command("/proc/self/exe", "-test.run", "^TestSandboxProcess$")
			cmd.Env = append(os.Environ(), probeSocket+"="+socket)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(whole * time.Duration(i) / moments)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			r := probeContainerd(t, socket)
			if !r.Pass {
				t.Errorf("after a kill at %d/%d: %+v", i, moments, r)
			}
			removed += len(r.Removed)
		}
		t.Logf("%d of %d killed probes left a sandbox, which the next removed; one probe takes %s", removed, moments, whole)
		c.checkEmpty(t, socket)
	})
}

// obey runs the first command of a remedy if this machine has its program. Then the probe passes, no check of the running node fails that
// did not fail before, and each Pod is still on the bridge.
func obey(t *testing.T, socket, remedy string, pods int) {
	t.Helper()
	command := regexp.MustCompile("^(?:run|correct) `?((?:ip link|chmod|cp|/tmp/)[^`,]+)").FindStringSubmatch(remedy)
	failing := func() (all []string) {
		h, err := host.Open("/")
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		policy := ""
		for _, name := range catalog.Names() {
			policy += fmt.Sprintf("check %q {}\n", name)
		}
		for _, r := range checks.Inspect(t.Context(), h, checks.Run, catalog.For(checkstest.Load(t, policy), checks.Run)).Results {
			if r.Differs() {
				all = append(all, r.Name)
			}
		}
		return all
	}
	if command != nil {
		before := failing()
		run(t, "sh", "-c", regexp.MustCompile("^/tmp/").ReplaceAllString(command[1], "rm $0"))
		time.Sleep(100 * time.Millisecond)
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) { // containerd notices a removed file
			if r := probeContainerd(t, socket); r.Pass && !r.HostNetwork {
				break
			} else if time.Now().After(end) {
				t.Fatalf("after %q: %+v", command[1], r)
			}
		}
		for _, name := range failing() {
			if !slices.Contains(before, name) {
				t.Errorf("after %q %s fails", command[1], name)
			}
		}
	}
	ports := strings.Count(string(run(t, "ip", "-o", "link", "show", "type", "veth")), "master cni0")
	if ports != pods {
		t.Errorf("after %q %d of %d Pods are on the bridge", command, ports, pods)
	}
	run(t, "sh", "-c", "ip link delete pod0 2>/dev/null || true")
}

// TestSandboxProcess is the process that TestSandboxContainerd kills.
func TestSandboxProcess(t *testing.T) {
	if socket := os.Getenv(probeSocket); socket != "" {
		probeContainerd(t, socket)
	}
}

func probeContainerd(t *testing.T, socket string) SandboxResult {
	t.Helper()
	h, err := host.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	r, err := Sandbox(t.Context(), h, SandboxOptions{Socket: socket, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// checkEmpty: no container, link, address or network namespace of a sandbox stays.
func (c containerd) checkEmpty(t *testing.T, socket string) {
	t.Helper()
	if out := run(t, "ctr", "-a", socket, "-n", "k8s.io", "containers", "ls", "-q"); len(out) > 0 {
		t.Errorf("containers stay: %s", out)
	}
	if out := run(t, "ip", "-o", "link", "show", "type", "veth"); len(out) > 0 {
		t.Errorf("links stay: %s", out)
	}
	_ = filepath.WalkDir(c.dir, func(name string, d fs.DirEntry, err error) error {
		if kind := filepath.Base(filepath.Dir(name)); err == nil && (kind == "netns" || kind == "pods") && !d.IsDir() &&
			strings.HasPrefix(d.Name(), "10.") || kind == "netns" && strings.HasPrefix(d.Name(), "cni-") {
			t.Errorf("%s stays", name)
		}
		return nil
	})
	run(t, "sh", "-c", "ip link delete cni0 2>/dev/null || true")
}

func run(t *testing.T, command ...string) []byte {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v %s", command, err, out)
	}
	return out
}
