//go:build cluster

package cluster

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// nodeRoot is a directory tree of a machine, and a container with a read-only root that sees the mounts of the DaemonSet.
type nodeRoot struct{ *Space }

func newNodeRoot(t *testing.T, binary, policy string, pod podSpec) nodeRoot {
	t.Helper()
	s, err := NewSpace()
	require.NoError(t, err)
	t.Cleanup(s.Close)
	script := `mkdir -p /run/machine/etc/systemd/system /run/machine/usr/local/bin /run/machine/run/systemd /run/pod /run/policy
printf '[Service]\nExecStart=/bin/true\n' >/run/machine/etc/systemd/system/kubelet.service; : >/run/machine/run/systemd/private
cp "$2" /run/policy; mount -t tmpfs -o mode=755 tmpfs /run/pod; cp "$1" /run/pod/nodegate; mkdir /run/pod/proc; mount --bind /proc /run/pod/proc
`
	for _, m := range pod.InitContainers[0].VolumeMounts { // in the order of a container runtime: parents first
		on := "/run/pod" + m.MountPath
		switch from := "/run/machine" + strings.TrimPrefix(m.MountPath, "/host"); m.Name {
		case "policy":
			script += "mkdir -p " + on + "; mount --bind /run/policy " + on + "\n"
		case "lock":
			script += "mkdir -p " + on + "; mount -t tmpfs -o mode=755 tmpfs " + on + "\n"
		case "systemd":
			script += "mkdir -p " + filepath.Dir(on) + "; : >" + on + "; mount --bind " + from + " " + on + "\n"
		default:
			script += "mkdir -p " + from + " " + on + "; mount --bind " + from + " " + on + "\n"
		}
	}
	require.NoError(t, s.Shell(t.Context(), script+"mount -o remount,ro /run/pod", binary, policy))
	return nodeRoot{s}
}

// run runs a container's command. There is no systemd.
func (r nodeRoot) run(t *testing.T, command []string) {
	t.Helper()
	line := slices.DeleteFunc(slices.Clone(command), func(a string) bool { return a == "--start" || a == "--stop" })
	assert.True(t, len(line) == len(command)-1, "%q does not try to reach systemd", command)
	require.NoError(t, r.Shell(t.Context(), `chroot /run/pod "$@"`, line...))
}

// files lists the files on the machine.
func (r nodeRoot) files(t *testing.T) string {
	t.Helper()
	out, err := r.Output(t.Context(), "sh", "-c", "cd /run/machine && find . | sort")
	require.NoError(t, err)
	return out
}
