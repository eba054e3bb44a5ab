package host

import (
	"net"
	"net/url"

	"golang.org/x/sys/unix"
)

// ContainerdSocket is the socket that kubelet uses unless it is configured.
const ContainerdSocket = "/run/containerd/containerd.sock"

// SocketPath returns the Unix socket of an endpoint as kubelet parses it (parseEndpoint of
// k8s.io/cri-client): the path of a URL, or a plain path, which is deprecated.
func SocketPath(endpoint string) string {
	if u, err := url.Parse(endpoint); err == nil && u.Scheme == "unix" {
		return u.Path
	}
	return endpoint
}

// RuntimeSocket returns the socket of the container runtime that kubelet uses: as it is configured, or else the first that exists.
func (h *Host) RuntimeSocket() (string, error) {
	k, err := h.Kubelet()
	if err != nil {
		return "", err
	}
	if endpoint := k.Values["containerRuntimeEndpoint"].Value; endpoint != "" {
		return SocketPath(endpoint), nil
	}
	for _, socket := range []string{ContainerdSocket, "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock"} {
		if exists, err := h.Files.Exists(socket); err == nil && exists {
			return socket, nil
		}
	}
	return ContainerdSocket, nil
}

// RuntimeProcess returns the PID of the process that listens on a socket, or 0 if it is not known.
func RuntimeProcess(socket string) (pid int) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return 0
	}
	defer func() { _ = conn.Close() }()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // the socket is open
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}
