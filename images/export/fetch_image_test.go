package export

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// registry serves one image, FROM scratch, with one file in it, and returns the image's digest.
func registry(t *testing.T, file, content string) (host, digest string) {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(file, "/"), Mode: 0o755, Size: int64(len(content))}))
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, w.Close())
	blobs := map[string][]byte{}
	add := func(media string, b []byte) map[string]any {
		d := "sha256:" + hexSum(string(b))
		blobs[d] = b
		return map[string]any{"mediaType": media, "digest": d, "size": len(b)}
	}
	encode := func(v any) []byte {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		return b
	}
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	layers := []any{add("application/vnd.oci.image.layer.v1.tar", layer.Bytes())}
	config := add("application/vnd.oci.image.config.v1+json", encode(map[string]any{
		"architecture": "amd64", "os": "linux", "rootfs": map[string]any{"type": "layers",
			"diff_ids": []string{"sha256:" + hexSum(layer.String())}},
	}))
	manifest := add(manifestType, encode(map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": layers}))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, ok := blobs[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if strings.Contains(r.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", manifestType)
		}
		_, _ = w.Write(b)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://"), manifest["digest"].(string)
}

// containerd runs a separate containerd in a temporary directory until the test ends.
func containerd(t *testing.T) (socket string) {
	t.Helper()
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "containerd")
	hosttest.NeedProgram(t, "ctr")
	dir := t.TempDir()
	config := dir + "/config.toml"
	require.NoError(t, os.WriteFile(config, []byte("version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n"), 0o644))
	socket = dir + "/containerd.sock"
	cmd := exec.Command("containerd", "--config", config, "--root", dir+"/root", "--state", dir+"/state", "--address", socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var log bytes.Buffer
	cmd.Stderr = &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if exec.Command("ctr", "--address", socket, "version").Run() == nil {
			return socket
		}
		require.True(t, !time.Now().After(end), "containerd does not answer:\n%s", log.String())
	}
}

// TestFetchImage pulls from a registry with a real containerd.
func TestFetchImage(t *testing.T) {
	socket := containerd(t)
	host, digest := registry(t, inImage, rightBinary)
	b := newStand(t, Delivery{Image: host + "/nodegate@" + digest})
	b.file("tools/ctr", "#!/bin/sh\nexec "+lookPath(t, "ctr")+" --address "+socket+" \"$@\"\n", 0o755)
	if out, ok := b.run("check"); ok {
		t.Errorf("nothing is there, and it may run: %s", out)
	}
	out, ok := b.run("fetch")
	require.True(t, ok && b.read("bin/nodegate") == rightBinary, "fetch: %t\n%s", ok, out)
	if out, ok := b.run("gate"); !ok || !strings.Contains(out, "gate ran: gate\n") {
		t.Errorf("gate: %t %s", ok, out)
	}
	b.file("bin/nodegate", "#!/bin/sh\necho wrong one ran\n", 0o755)
	if out, ok := b.run("gate"); ok || strings.Contains(out, "wrong one ran") {
		t.Errorf("a changed binary: %t %s", ok, out)
	}
	if out, ok := b.run("fetch"); !ok || b.read("bin/nodegate") != rightBinary {
		t.Errorf("fetched again: %t %s", ok, out)
	}
	if mounts, _ := os.ReadFile("/proc/mounts"); strings.Contains(string(mounts), b.dir) {
		t.Errorf("a mount is left:\n%s", mounts)
	}

	t.Run("another digest", func(t *testing.T) {
		b := newStand(t, Delivery{Image: host + "/nodegate@sha256:" + sum})
		b.file("tools/ctr", "#!/bin/sh\nexec "+lookPath(t, "ctr")+" --address "+socket+" \"$@\"\n", 0o755)
		if out, ok := b.run("fetch"); ok || !strings.Contains(out, "could not pull") || b.read("bin/nodegate") != "" {
			t.Errorf("%t %s", ok, out)
		}
	})
	t.Run("an image without nodegate", func(t *testing.T) {
		host, digest := registry(t, "/other", rightBinary)
		b := newStand(t, Delivery{Image: host + "/nodegate@" + digest})
		b.file("tools/ctr", "#!/bin/sh\nexec "+lookPath(t, "ctr")+" --address "+socket+" \"$@\"\n", 0o755)
		if out, ok := b.run("fetch"); ok || !strings.Contains(out, "no /nodegate could be copied out of") {
			t.Errorf("%t %s", ok, out)
		}
	})
	t.Run("no ctr", func(t *testing.T) {
		b := newStand(t, Delivery{Image: host + "/nodegate@" + digest})
		b.path = []string{b.dir + "/tools"}
		for n := range strings.FieldsSeq("sh cut sha256sum cat mktemp mkdir rm mv chmod") {
			require.NoError(t, os.Symlink(lookPath(t, n), b.dir+"/tools/"+n))
		}
		if out, ok := b.run("fetch"); ok || !strings.Contains(out, "ctr of containerd is not here") {
			t.Errorf("%t %s", ok, out)
		}
	})
}

func lookPath(t *testing.T, program string) string {
	t.Helper()
	hosttest.NeedProgram(t, program)
	path, err := exec.LookPath(program)
	require.NoError(t, err)
	return path
}
