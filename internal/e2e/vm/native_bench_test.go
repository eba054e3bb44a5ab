//go:build vm

package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// container boots the tree $1 with systemd as its first process, on this machine's kernel, in its own namespaces and the control group
// $2. Only the network's part of /proc/sys is writable.
const container = `
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mkdir /run/groups
mount -t cgroup2 cgroup2 /run/groups
mkdir "/run/groups/$2"
trap 'echo 0 >/run/groups/cgroup.procs; find "/run/groups/$2" -depth -type d -exec rmdir {} ";"' EXIT
echo 0 >"/run/groups/$2/cgroup.procs"
SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 unshare --cgroup sh -euc '
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
	exec systemd-nspawn --quiet --register=no --keep-unit --private-network --machine="$2" --directory="$1" --boot --console=pipe \
		--capability=CAP_SYS_MODULE,CAP_NET_ADMIN --system-call-filter=~@module' sh "$1" "$2" </dev/null
`

// figures is a unit that records systemd's timestamps as soon as kubelet runs, and ends the boot.
const figures = `[Unit]
After=kubelet.service
[Service]
Type=oneshot
StandardOutput=truncate:/figures
ExecStart=/bin/sh -c 'systemctl show -p Id,InactiveExitTimestampMonotonic,ActiveEnterTimestampMonotonic,ExecMainStartTimestampMonotonic \
 systemd-modules-load systemd-sysctl nodegate-apply kubelet; journalctl -b --no-pager -t nodegate -n 20; \
 systemctl poweroff --no-block 2>/dev/null'
`

// nodeParameters are the sysctls of the built-in policy that all namespaces share. The container requires this machine's values, and
// writes none.
var nodeParameters = map[string]string{
	"vm.overcommit_memory": "value", "vm.panic_on_oom": "value", "kernel.panic": "value", "kernel.panic_on_oops": "value",
	"kernel.keys.root_maxkeys": "value", "kernel.keys.root_maxbytes": "value",
	"fs.inotify.max_user_watches": "min", "fs.inotify.max_user_instances": "min",
}

// BenchmarkNativeBoot boots the Debian tree in a container. It reports the median times of nodegate and, for comparison, of systemd's
// first services. All come from the same boots, so that other load on the machine does not distort the ratio.
func BenchmarkNativeBoot(b *testing.B) {
	hosttest.NeedBridgeNetfilter(b)
	hosttest.NeedProgram(b, "systemd-nspawn")
	r := newRunner(b)
	tree := nativeTree(b, r)
	took := map[string][]float64{}
	for b.Loop() {
		for name, ms := range nativeBoot(b, r, tree) {
			took[name] = append(took[name], ms)
		}
	}
	for name, all := range took {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], name)
	}
}

func nativeTree(b *testing.B, r Runner) string {
	b.Helper()
	policy := "use \"kubernetes\" {}\n"
	for key, field := range nodeParameters {
		value := require.ReadFile(b, "/proc/sys/"+strings.ReplaceAll(key, ".", "/"))
		policy += fmt.Sprintf("override \"sysctl.%s\" {\n  %s = %s\n}\n", key, field, strings.TrimSpace(string(value)))
	}
	tree := filepath.Join(r.Scratch, "native")
	require.NoError(b, r.Base.Clone(b.Context(), tree))
	kernel := require.ReadFile(b, "/proc/sys/kernel/osrelease")
	modules := filepath.Join("lib/modules", strings.TrimSpace(string(kernel)))
	for name, text := range map[string]string{
		"etc/policy.hcl":                      policy,
		"etc/systemd/system/figures.service":  figures,
		"etc/systemd/system/kubelet.service":  "[Service]\nExecStart=/bin/sleep infinity\n",
		"etc/systemd/system/vm-agent.service": "[Service]\nExecStart=/bin/true\n",
		modules + "/modules.order":            "",
		modules + "/modules.builtin":          "kernel/br_netfilter.ko\nkernel/overlay.ko\nkernel/nf_conntrack.ko\n",
	} {
		require.NoError(b, os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755))
		require.NoError(b, os.WriteFile(filepath.Join(tree, name), []byte(text), 0o644))
	}
	require.NoError(b, os.MkdirAll(filepath.Join(tree, "etc/systemd/system/multi-user.target.wants"), 0o755))
	require.NoError(b, os.Symlink("../figures.service", filepath.Join(tree, "etc/systemd/system/multi-user.target.wants/figures.service")))
	for _, command := range [][]string{
		{"depmod", "--basedir", tree, filepath.Base(modules)},
		{r.Nodegate, "install", "--root", tree, "--policy", filepath.Join(tree, "etc/policy.hcl")},
	} {
		_, err := runProgram(b.Context(), prepareTime, nil, command[0], command[1:]...)
		require.NoError(b, err)
	}
	return tree
}

// nativeBoot boots once and returns the times in milliseconds.
func nativeBoot(b *testing.B, r Runner, tree string) map[string]float64 {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	said, err := runProgram(ctx, time.Minute, nil, "sh", "-euc", container, "sh", tree, filepath.Base(r.Scratch))
	require.NoError(b, err)
	text, err := os.ReadFile(filepath.Join(tree, "figures"))
	require.True(b, err == nil, "%v\n%s", err, said)
	ms := map[string]float64{}
	for block := range strings.SplitSeq(string(text), "\n\n") {
		at := map[string]float64{}
		name := ""
		for line := range strings.Lines(block) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			if key == "Id" {
				name = strings.TrimSuffix(value, ".service")
			}
			if number, err := strconv.ParseFloat(value, 64); err == nil && number > 0 {
				at[strings.TrimSuffix(key, "TimestampMonotonic")] = number / 1000
			}
		}
		end := at["ActiveEnter"]
		if name == "kubelet" {
			name, end = "gate", at["ExecMainStart"]
		}
		if name != "" && at["InactiveExit"] > 0 && end > 0 {
			ms[name+"-ms"] = end - at["InactiveExit"]
		}
	}
	require.True(b, len(ms) == 4, "not every unit ran:\n%s", text)
	ms["nodegate-over-systemd"] = (ms["nodegate-apply-ms"] + ms["gate-ms"]) / (ms["systemd-sysctl-ms"] + ms["systemd-modules-load-ms"])
	return ms
}
