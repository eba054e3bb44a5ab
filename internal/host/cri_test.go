package host

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
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
