//go:build torture

package torture

import (
	"os"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
)

// hangOn mounts a FUSE file system whose server never reads over each path, as cmd/nodegate/testdata/gate_hangs.txtar does. It
// creates missing paths, if possible.
const hangOn = `fd=4
for at in $paths; do
	[ -e "$at" ] || case $at in
	/sys/*) mount -t tmpfs tmpfs /sys/class; mkdir -p "${at%/*}"; : >"$at" ;;
	*) mkdir -p "${at%/*}"; : >"$at" ;;
	esac
	mode=100644
	[ ! -d "$at" ] || mode=40755
	eval "exec $fd<>/dev/fuse"
	mount -i -t fuse -o fd=$fd,rootmode=$mode,user_id=0,group_id=0 hung "$at"
	fd=$((fd+1))
done
`

// TestHungFileSystems mounts a file system that never answers over each file and directory on a gate's way. The gate must end
// soon after its budget, and must not let the unit start.
func TestHungFileSystems(t *testing.T) {
	t.Parallel()
	_, err := os.Stat("/dev/fuse")
	hosttest.Need(t, err == nil, "/dev/fuse")
	r := newRoom(t, heldPolicy)
	paths := []string{"/etc/nodegate", "/etc/nodegate/policy.d", "/etc/nodegate/policy.d/a.hcl", "/etc/nodegate/disabled", "/etc/os-release",
		"/run", "/run/nodegate", "/run/systemd", "/run/systemd/notify", "/run/systemd/journal/socket",
		"/run/systemd/container", "/var/lib", "/var/lib/nodegate", "/proc/cmdline", "/proc/sys/kernel/osrelease",
		"/lib/modules", "/etc/systemd", "/etc/systemd/system", "/sys/module", "/sys/class", "/etc/hostname", "/etc/passwd",
		"/etc/nodegate/disabled /etc/os-release /run/nodegate /proc/cmdline",
		"/etc/nodegate/policy.d /var/lib /run"} // mount(8) itself waits for /run
	var s survey
	forEachPoint(samplePoints(t, len(paths), len(paths)), 13, func(i int) {
		s.runPoint(t, "gate, "+paths[i]+" never answers", func() error {
			setup := "mkdir /run/nodegate /var/lib/nodegate; export NOTIFY_SOCKET=/run/systemd/notify; paths='" + paths[i] + "'\n"
			out, status, err := r.run(setup+hangOn, "gate")
			return judgeHeld(out, status, err, "held")
		})
	})
	s.printCounts(t, "gate: a FUSE file system never answers")
	out, status, err := r.run("", "gate")
	assert.True(t, judgeHeld(out, status, err, "nodegate_no_such") == nil && !strings.Contains(out, "has not returned"),
		"without an attack: status %d, %v: %s", status, err, out)
}
