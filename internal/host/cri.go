package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// Runtimes are container runtimes, asked over CRI, the gRPC interface that kubelet
// uses (k8s.io/cri-api).
type Runtimes interface {
	// CRIVersion returns the name and version of the runtime behind a Unix socket, in
	// the words of one version of CRI: "v1" or "v1alpha2". Without the socket the error
	// is fs.ErrNotExist, with nobody behind it syscall.ECONNREFUSED, and
	// errors.ErrUnsupported where the runtime does not implement that version.
	CRIVersion(ctx context.Context, socket, api string) (string, error)
}

type machineRuntimes struct{}

const (
	criTime   = 2 * time.Second
	criAnswer = 1 << 16 // the most bytes of an answer
)

// CRIVersion makes one gRPC call over HTTP/2 without TLS. It needs no gRPC library,
// whose package initialisation every start of the program would pay.
func (machineRuntimes) CRIVersion(ctx context.Context, socket, api string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, criTime)
	defer cancel()
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		Protocols: &http.Protocols{},
	}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	// An empty message: not compressed, no bytes.
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/runtime."+api+".RuntimeService/Version",
		bytes.NewReader(make([]byte, 5)))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", fmt.Errorf("asking the runtime at %s: %w", socket, err)
	}
	defer response.Body.Close()
	message, err := io.ReadAll(io.LimitReader(response.Body, criAnswer))
	if err != nil {
		return "", fmt.Errorf("asking the runtime at %s: %w", socket, err)
	}
	status := response.Trailer.Get("Grpc-Status")
	if status == "" { // an answer without a message has it in the header
		status = response.Header.Get("Grpc-Status")
	}
	switch status {
	case "0":
		return parseCRIVersion(message)
	case "12": // UNIMPLEMENTED
		return "", fmt.Errorf("the runtime at %s has no CRI %s: %w", socket, api, errors.ErrUnsupported)
	}
	return "", fmt.Errorf("asking the runtime at %s: gRPC status %q: %s", socket, status,
		response.Trailer.Get("Grpc-Message")+response.Header.Get("Grpc-Message"))
}

// parseCRIVersion reads a VersionResponse: runtime_name is field 2, runtime_version
// field 3, all fields are strings.
func parseCRIVersion(message []byte) (string, error) {
	bad := errors.New("the runtime's answer is not a VersionResponse")
	if len(message) < 5 || message[0] != 0 || int(binary.BigEndian.Uint32(message[1:])) != len(message)-5 {
		return "", bad
	}
	fields := map[uint64]string{}
	for rest := message[5:]; len(rest) > 0; {
		tag, n := binary.Uvarint(rest)
		if n <= 0 || tag&7 != 2 {
			return "", bad
		}
		size, m := binary.Uvarint(rest[n:])
		if m <= 0 || size > uint64(len(rest)-n-m) {
			return "", bad
		}
		fields[tag>>3] = string(rest[n+m : n+m+int(size)])
		rest = rest[n+m+int(size):]
	}
	return strings.TrimSpace(fields[2] + " " + fields[3]), nil
}
