package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestCgroupDriver compares the runtimes' responses in gRPC's encoding: containerd 2 implements RuntimeConfig, containerd 1 only Status.
func TestCgroupDriver(t *testing.T) {
	field := func(n byte, value string) string {
		return string([]byte{n<<3 | 2}) + string(binary.AppendUvarint(nil, uint64(len(value)))) + value
	}
	const containerd = `{"containerd":{"defaultRuntimeName":"runc","runtimes":{"runc":{"options":{"SystemdCgroup":true}}}}}`
	for _, c := range []struct {
		what, method, answer, want string
	}{
		{"systemd, the default of the field", "RuntimeConfig", field(1, ""), "systemd told"},
		{"cgroupfs", "RuntimeConfig", field(1, "\x08\x01"), "cgroupfs told"},
		{"nothing for Linux", "RuntimeConfig", "", "unsupported"},
		{"containerd 1", "Status", field(2, field(1, "config")+field(2, containerd)), "systemd"},
		{"another runtime", "Status", field(2, field(1, "version")+field(2, "x")), "unsupported"},
		{"nonsense", "Status", "\xff", "error"},
		{"too large", "Status", strings.Repeat("a", criAnswer), "larger than 1 MiB"},
		{"neither", "", "", "unsupported"},
		{"100 MB", "Status", "", "larger than 1 MiB"},
		{"half", "Status", "", "received from peer"},
		{"half, and no fault", "Status", "", "not a CRI message"},
		{"too slow", "Status", "", "deadline exceeded"},
		{"without an end", "RuntimeConfig", "", "deadline exceeded"},
	} {
		socket := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", socket)
		require.NoError(t, err)
		server := &http.Server{Protocols: &http.Protocols{}, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/grpc")
				if c.method == "" || !strings.HasSuffix(r.URL.Path, "/"+c.method) {
					w.Header().Set("Grpc-Status", "12")
					return
				}
				w.Header().Set("Trailer", "Grpc-Status")
				switch written := 0; c.what {
				case "100 MB":
					part := make([]byte, 64<<10)
					for _, gone := w.Write(part); gone == nil && written < 100<<20; written += len(part) {
						_, gone = w.Write(part)
					}
					assert.True(t, written <= 50*criAnswer, "%d bytes were read", written)
				case "half", "half, and no fault":
					_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, 100), make([]byte, 50)...))
					_ = http.NewResponseController(w).Flush()
					if c.what == "half" {
						panic(http.ErrAbortHandler)
					}
				case "without an end", "too slow":
					if c.what == "without an end" {
						_, _ = w.Write([]byte{0, 0, 0, 0, 9, 1})
						_ = http.NewResponseController(w).Flush()
					}
					<-r.Context().Done()
				default:
					_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(c.answer))), c.answer...))
				}
				w.Header().Set("Grpc-Status", "0")
			})}
		server.Protocols.SetUnencryptedHTTP2(true)
		go func() { _ = server.Serve(l) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		d, err := machineRuntimes{}.CgroupDriver(ctx, socket)
		assert.True(t, ctx.Err() == nil, "%s: only the caller's deadline ended the call", c.what)
		cancel()
		_ = server.Close()
		got := d.Driver
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			got = "unsupported"
		case err != nil && strings.HasSuffix(err.Error(), c.want):
			got = c.want
		case err != nil:
			got = "error"
		case d.Told:
			got += " told"
		}
		assert.True(t, got == c.want, "%s: %s (%v), want %s", c.what, got, err, c.want)
	}
}

// TestRuntimeSetupCRIO: CRI-O reports its programs over CRI, and its directories over HTTP on the same socket. Of the files of networks, it
// ignores one that is not JSON, and one whose plugin is missing.
func TestRuntimeSetupCRIO(t *testing.T) {
	const status = `{"sandboxImage":"pause:3.10","crio":{"DefaultRuntime":"crun","CgroupManagerName":"systemd","Runtimes":{"crun":` +
		`{"RuntimePath":"/usr/bin/crun","MonitorPath":"/usr/bin/conmon"}}}}`
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	server := &http.Server{Protocols: &http.Protocols{}, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/config" {
				fmt.Fprintf(w, "  [crio.network]\n    cni_default_network = \"\"\n    network_dir = %q\n    plugin_dirs = [%q, \"/opt/none\"]\n", dir, dir)
				return
			}
			w.Header().Set("Trailer", "Grpc-Status")
			answer := protoBytes(2, append(protoText(1, "config"), protoText(2, status)...))
			_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(answer))), answer...))
			w.Header().Set("Grpc-Status", "0")
		})}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	want := func(want string) {
		t.Helper()
		s, err := machineRuntimes{}.RuntimeSetup(t.Context(), socket)
		require.NoError(t, err)
		got := strings.ReplaceAll(fmt.Sprint(s.SandboxImage, s.Default, s.Handlers, s.PluginDirs, s.Networks, s.Ignored), dir, "DIR")
		assert.Equal(t, got, want)
	}
	const programs = "pause:3.10crunmap[crun:{/usr/bin/crun /usr/bin/conmon true}] [DIR /opt/none] "
	want(programs + "[] []")
	write("10-pods.conflist", `{"name":"pods","plugins":[{"type":"bridge","ipam":{"type":"host-local"}},{"type":"portmap"}]}`)
	write("20-old.conf", `{"name":"old","type":"ptp"}`)
	write("README", "")
	want(programs + "[{pods [bridge host-local portmap]}] []")
	write("ptp", "")
	want(programs + "[{old [ptp]}] []")
	write("05-bad.json", "{")
	want(programs + "[{old [ptp]}] [DIR/05-bad.json: unexpected end of JSON input]")
}

func FuzzProto(f *testing.F) {
	f.Add([]byte("\x12\x03abc\x08\x01"))
	f.Fuzz(func(t *testing.T, message []byte) {
		total := 0
		for e, err := range protoEach(message) {
			if err == nil {
				total += len(e.value)
			}
		}
		require.True(t, total <= len(message), "%d bytes out of %d", total, len(message))
	})
}
