package host

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"strconv"
	"time"
)

// Sandbox is a Pod sandbox: a Pod's network namespace and its first container, without containers of its own.
type Sandbox struct {
	Ready bool
	IPs   []string // none on the host network
}

// sandboxLabel marks the sandboxes of this program.
const sandboxLabel, sandboxLabelValue = "nodegate.probe", "sandbox"

// SandboxName is the name of the sandboxes of this program, and their namespace.
const SandboxName = "nodegate-probe"

// HasImage reports whether the runtime has an image, or any pinned image if image is "". It does not pull it.
func HasImage(ctx context.Context, socket, image string) (bool, error) {
	if image == "" {
		return hasPinnedImage(ctx, socket)
	}
	message, err := criCall(ctx, socket, "runtime.v1.ImageService/ImageStatus", protoBytes(1, protoText(1, image)))
	if err != nil {
		return false, err
	}
	fields, err := protoFields(message)
	return len(fields[1]) > 0, err
}

func hasPinnedImage(ctx context.Context, socket string) (bool, error) {
	message, err := criCall(ctx, socket, "runtime.v1.ImageService/ListImages", nil)
	if err != nil {
		return false, err
	}
	for image, err := range protoEach(message) {
		if err != nil {
			return false, err
		}
		fields, err := protoFields(image.value)
		if pinned := fields[8]; err != nil || len(pinned) > 0 && pinned[0] == 1 {
			return true, err
		}
	}
	return false, nil
}

// RunSandbox starts a Pod sandbox as kubelet does, and returns its ID. parent is its cgroup's parent, "" for the runtime's default. kubelet
// finds the sandbox by its labels, and removes it as a Pod that the API server does not know.
func RunSandbox(ctx context.Context, socket, parent string, hostNetwork bool) (id string, err error) {
	uid := SandboxName + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	var namespaces []byte // 0 is a namespace of the Pod's own
	if hostNetwork {
		namespaces = []byte{1 << 3, 2}
	}
	security := append(protoBytes(1, namespaces), protoBytes(9, nil)...) // seccomp: the runtime's default
	config := protoBytes(1, append(append(protoText(1, SandboxName), protoText(2, uid)...), protoText(3, SandboxName)...))
	if !hostNetwork {
		config = append(config, protoText(2, SandboxName)...)
	}
	for _, label := range [][2]string{{sandboxLabel, sandboxLabelValue}, {"io.kubernetes.pod.name", SandboxName},
		{"io.kubernetes.pod.namespace", SandboxName}, {"io.kubernetes.pod.uid", uid}} {
		config = append(config, protoBytes(6, append(protoText(1, label[0]), protoText(2, label[1])...))...)
	}
	config = append(config, protoBytes(8, append(protoText(1, parent), protoBytes(2, security)...))...)
	message, err := criCallLong(ctx, socket, "runtime.v1.RuntimeService/RunPodSandbox", protoBytes(1, config))
	if err != nil {
		return "", err
	}
	fields, err := protoFields(message)
	if id = string(fields[1]); id == "" {
		err = cmp.Or(err, errNotCRI)
	}
	return id, err
}

// GetSandbox returns the state of a sandbox.
func GetSandbox(ctx context.Context, socket, id string) (s Sandbox, err error) {
	message, err := criCall(ctx, socket, "runtime.v1.RuntimeService/PodSandboxStatus", protoText(1, id))
	if err != nil {
		return s, err
	}
	var parts [3]map[uint64][]byte // the response, the status in its field 1, the network in the status' field 5
	for i, field := range []uint64{1, 5, 1} {
		if parts[i], err = protoFields(message); err != nil {
			return s, err
		}
		message = parts[i][field]
	}
	s.Ready = len(parts[1][3]) == 0 || parts[1][3][0] == 0
	if ip := string(parts[2][1]); ip != "" {
		s.IPs = []string{ip}
	}
	for more, err := range protoEach(parts[1][5]) {
		if err != nil {
			return s, err
		}
		if more.field == 2 {
			ip, err := protoFields(more.value)
			if err != nil {
				return s, err
			}
			s.IPs = append(s.IPs, string(ip[1]))
		}
	}
	return s, nil
}

// RemoveSandboxes stops and removes all sandboxes of this program. It returns the IDs of those that it removed, and of those that the
// runtime could not remove, with its errors.
func RemoveSandboxes(ctx context.Context, socket string) (removed, left []string, err error) {
	label := append(protoText(1, sandboxLabel), protoText(2, sandboxLabelValue)...)
	message, err := criCall(ctx, socket, "runtime.v1.RuntimeService/ListPodSandbox", protoBytes(1, protoBytes(3, label)))
	if err != nil {
		return nil, nil, err
	}
	for item, bad := range protoEach(message) {
		fields, unread := protoFields(item.value)
		if bad = cmp.Or(bad, unread); bad != nil {
			return removed, left, bad
		}
		id := string(fields[1])
		_, stop := criCallLong(ctx, socket, "runtime.v1.RuntimeService/StopPodSandbox", protoText(1, id))
		_, remove := criCallLong(ctx, socket, "runtime.v1.RuntimeService/RemovePodSandbox", protoText(1, id))
		if remove != nil { // it stops the sandbox too
			left, err = append(left, id), errors.Join(err, stop, remove)
			continue
		}
		removed = append(removed, id)
	}
	return removed, left, err
}

func protoText(field uint64, text string) []byte { return protoBytes(field, []byte(text)) }

// protoBytes encodes a field of a message: a text, or a message.
func protoBytes(field uint64, value []byte) []byte {
	return append(binary.AppendUvarint(binary.AppendUvarint(nil, field<<3|2), uint64(len(value))), value...)
}
