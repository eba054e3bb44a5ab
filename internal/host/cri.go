package host

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Runtimes are container runtimes, queried over CRI, the gRPC interface that kubelet uses
// (k8s.io/cri-api).
type Runtimes interface {
	// CRIVersion returns the name and version of the runtime behind a Unix socket. api is the CRI
	// version to speak: "v1" or "v1alpha2"; with ImageService, the socket need only serve images, and
	// the name is "". The error is fs.ErrNotExist if the socket is missing,
	// syscall.ECONNREFUSED if no process listens on it, and errors.ErrUnsupported if the runtime
	// does not implement that CRI version.
	CRIVersion(ctx context.Context, socket, api string) (string, error)
	// CgroupDriver returns the cgroup driver that the runtime behind a Unix socket is using. It
	// returns the same errors as CRIVersion, and errors.ErrUnsupported if the runtime does not
	// report its driver.
	CgroupDriver(ctx context.Context, socket string) (CgroupDriver, error)
	// RuntimeSetup returns the handlers that containerd reports; those of another runtime are empty.
	RuntimeSetup(ctx context.Context, socket string) (RuntimeSetup, error)
}

// CgroupDriver is the cgroup driver of a container runtime.
type CgroupDriver struct {
	Driver string `json:"driver"` // systemd or cgroupfs
	// Told is set if the runtime also reports its driver to kubelet, by CRI's RuntimeConfig:
	// kubelet 1.31 and later then uses the runtime's driver.
	Told bool `json:"told"`
}

// ImageService asks CRIVersion for CRI v1's image service, which may have a socket of its own.
const ImageService = "images"

// ContainerdSocket is the socket that kubelet uses unless it is configured.
const ContainerdSocket = "/run/containerd/containerd.sock"

// RuntimeSetup is the part of containerd's CRI configuration that names the programs that start containers.
type RuntimeSetup struct {
	Default  string                    `json:"default,omitempty"` // the handler of a Pod without a RuntimeClass
	Handlers map[string]RuntimeHandler `json:"handlers,omitempty"`
}

// RuntimeHandler is a program that the runtime starts containers with, by default runc.
type RuntimeHandler struct {
	SystemdCgroup bool `json:"systemdCgroup,omitempty"`
}

type machineRuntimes struct{}

const (
	criTime   = 2 * time.Second
	criAnswer = 1 << 20 // maximum size of a response in bytes
)

// CRIVersion calls Version, whose response has runtime_name in field 2 and runtime_version in field
// 3. To the image service it makes the call with which kubelet validates it (validateServiceConnection in
// k8s.io/cri-client/pkg/remote_image.go).
func (machineRuntimes) CRIVersion(ctx context.Context, socket, api string) (string, error) {
	if api == ImageService {
		_, err := criCall(ctx, socket, "runtime.v1.ImageService/ImageFsInfo", nil)
		return "", err
	}
	message, err := criCall(ctx, socket, "runtime."+api+".RuntimeService/Version", nil)
	if err != nil {
		return "", err
	}
	fields, err := protoFields(message)
	return strings.TrimSpace(string(fields[2]) + " " + string(fields[3])), err
}

// CgroupDriver calls RuntimeConfig, which containerd has since 2.0. In its response, field 1 is the
// Linux configuration, whose field 1 is the driver: 0 systemd, 1 cgroupfs. If RuntimeConfig is not
// implemented, RuntimeSetup has the running configuration of containerd's CRI plugin.
func (machineRuntimes) CgroupDriver(ctx context.Context, socket string) (CgroupDriver, error) {
	message, err := criCall(ctx, socket, "runtime.v1.RuntimeService/RuntimeConfig", nil)
	if err == nil {
		fields, err := protoFields(message)
		linux, told := fields[1]
		if err != nil || !told {
			return CgroupDriver{}, cmp.Or(err, errors.ErrUnsupported)
		}
		return CgroupDriver{driverName(bytes.Equal(linux, []byte{8, 1})), true}, nil
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		return CgroupDriver{}, err
	}
	setup, err := machineRuntimes{}.RuntimeSetup(ctx, socket)
	if err != nil {
		return CgroupDriver{}, err
	}
	if handler, known := setup.Handlers[setup.Default]; known {
		return CgroupDriver{driverName(!handler.SystemdCgroup), false}, nil
	}
	return CgroupDriver{}, fmt.Errorf("the runtime at %s does not report its cgroup driver: %w", socket, errors.ErrUnsupported)
}

// RuntimeSetup calls Status. In its response, field 2 is a map of JSON, which is not part of CRI: "config" is containerd's configuration.
func (machineRuntimes) RuntimeSetup(ctx context.Context, socket string) (s RuntimeSetup, err error) {
	message, err := criCall(ctx, socket, "runtime.v1.RuntimeService/Status", []byte{8, 1})
	if err != nil {
		return s, err
	}
	for part, err := range protoEach(message) {
		if err != nil {
			return s, err
		}
		if part.field != 2 {
			continue
		}
		info, err := protoFields(part.value)
		if err != nil {
			return s, err
		}
		var config struct {
			Containerd struct {
				DefaultRuntimeName string
				Runtimes           map[string]struct{ Options RuntimeHandler }
			}
		}
		if string(info[1]) != "config" || json.Unmarshal(info[2], &config) != nil {
			continue
		}
		s = RuntimeSetup{config.Containerd.DefaultRuntimeName, map[string]RuntimeHandler{}}
		for name, runtime := range config.Containerd.Runtimes {
			s.Handlers[name] = runtime.Options
		}
	}
	return s, nil
}

// SocketPath returns the Unix socket of an endpoint as kubelet parses it (parseEndpoint of
// k8s.io/cri-client): the path of a URL, or a plain path, which is deprecated.
func SocketPath(endpoint string) string {
	if u, err := url.Parse(endpoint); err == nil && u.Scheme == "unix" {
		return u.Path
	}
	return endpoint
}

func driverName(cgroupfs bool) string {
	if cgroupfs {
		return "cgroupfs"
	}
	return "systemd"
}

// criCall makes one gRPC call over HTTP/2 without TLS. It avoids the gRPC library, whose package
// initialisation would slow down every start of the program.
func criCall(ctx context.Context, socket, method string, message []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, criTime)
	defer cancel()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}, Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	// The prefix of a gRPC message: not compressed (0), then the length.
	frame := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/"+method, bytes.NewReader(frame))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("querying the runtime at %s: %w", socket, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, criAnswer+1))
	if err == nil && len(answer) > criAnswer {
		err = fmt.Errorf("its response is larger than %d MiB", criAnswer>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("querying the runtime at %s: %w", socket, err)
	}
	status := response.Trailer.Get("Grpc-Status")
	if status == "" { // a response without a message carries the status in its header
		status = response.Header.Get("Grpc-Status")
	}
	switch status {
	case "0":
		if len(answer) < 5 || answer[0] != 0 || int(binary.BigEndian.Uint32(answer[1:])) != len(answer)-5 {
			return nil, errNotCRI
		}
		return answer[5:], nil
	case "12": // UNIMPLEMENTED
		return nil, fmt.Errorf("the runtime at %s does not implement %s: %w", socket, method, errors.ErrUnsupported)
	}
	words := response.Trailer.Get("Grpc-Message") + response.Header.Get("Grpc-Message")
	if plain, err := url.PathUnescape(words); err == nil { // gRPC encodes it as a URL does
		words = plain
	}
	return nil, fmt.Errorf("querying the runtime at %s: gRPC status %q: %s", socket, status, words)
}

var errNotCRI = errors.New("the runtime's response is not a CRI message")

// protoField is one field of a protobuf message.
type protoField struct {
	field uint64
	value []byte // a number stays encoded
}

// protoEach yields the fields of a message and stops at the first one that it cannot decode.
func protoEach(message []byte) iter.Seq2[protoField, error] {
	return func(yield func(protoField, error) bool) {
		for len(message) > 0 {
			tag, n := binary.Uvarint(message)
			if n <= 0 {
				yield(protoField{}, errNotCRI)
				return
			}
			message = message[n:]
			size, n := binary.Uvarint(message)
			end := n
			if tag&7 == 2 { // bytes: a length precedes them
				end = n + int(min(size, uint64(len(message))))
			}
			if n <= 0 || end > len(message) || tag&7 != 0 && tag&7 != 2 {
				yield(protoField{}, errNotCRI)
				return
			}
			value := message[:end]
			if tag&7 == 2 {
				value = message[n:end]
			}
			message = message[end:]
			if !yield(protoField{tag >> 3, value}, nil) {
				return
			}
		}
	}
}

// protoFields returns the last value of each field of a message.
func protoFields(message []byte) (map[uint64][]byte, error) {
	fields := map[uint64][]byte{}
	for f, err := range protoEach(message) {
		if err != nil {
			return nil, err
		}
		fields[f.field] = f.value
	}
	return fields, nil
}
