package host

import (
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nodegate/internal/require"
)

// TestCgroupDriver compares the runtimes' responses in gRPC's encoding: containerd 2 implements
// RuntimeConfig, containerd 1 only Status.
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
				_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(c.answer))), c.answer...))
				w.Header().Set("Grpc-Status", "0")
			})}
		server.Protocols.SetUnencryptedHTTP2(true)
		go func() { _ = server.Serve(l) }()
		d, err := machineRuntimes{}.CgroupDriver(t.Context(), socket)
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
		if got != c.want {
			t.Errorf("%s: %s (%v), want %s", c.what, got, err, c.want)
		}
	}
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
		if total > len(message) {
			t.Fatalf("%d bytes out of %d", total, len(message))
		}
	})
}
