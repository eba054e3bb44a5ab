//go:build vm

package vm

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// release is a Debian release and its mmdebstrap arguments.
type release struct{ name, source string }

// TestTrees checks real Debian trees at the stage image: with nodegate installed and otherwise unchanged, and broken in one way at a time.
func TestTrees(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	for _, rel := range []release{
		{"bullseye", "deb http://deb.debian.org/debian bullseye main"},
		{"bookworm", ""},
		{"trixie", "deb http://deb.debian.org/debian trixie main"},
	} {
		t.Run(rel.name, func(t *testing.T) {
			tree := r.Base.Tree
			if rel.source != "" {
				tree = buildTree(t, r.Scratch, rel)
			} else {
				copied := filepath.Join(r.Scratch, "tree-bookworm")
				_, err := runProgram(t.Context(), 5*time.Minute, nil, "cp", "-a", tree, copied)
				require.NoError(t, err)
				tree = copied
			}
			kubelet := filepath.Join(tree, "etc/systemd/system/kubelet.service") // Debian has none
			unit := "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
			require.NoError(t, os.WriteFile(kubelet, []byte(unit), 0o644))
			mustRun(t, "systemctl", "--root", tree, "enable", "kubelet.service")
			putFile(t, tree+"/etc/hostname", "localhost\n") // mmdebstrap copies the name of the machine that it runs on
			if keygen := filepath.Join(tree, "etc/systemd/system/ssh.service.d/keygen.conf"); hasUnit(tree, "ssh.service") {
				putFile(t, keygen, guideBlock(t, "ini keygen.conf"))
			}
			out, err := exec.CommandContext(t.Context(), r.Nodegate, "install", "--root", tree).CombinedOutput()
			require.True(t, err == nil, "install: %v\n%s", err, out)
			failed := failingChecks(t, r.Nodegate, tree)
			assert.True(t, len(failed) == 0, "checks fail on an intact tree: %v", failed)
			checkBootOrders(t, tree)
			for _, b := range append(breakages(t, tree), withoutModules(t, tree)...) {
				undo := b.do()
				failed := failingChecks(t, r.Nodegate, tree)
				assert.True(t, strings.Join(failed, " ") == b.want, "%s: fails %v, want %s", b.name, failed, b.want)
				undo()
			}
		})
	}
}

func buildTree(t *testing.T, dir string, rel release) string {
	t.Helper()
	tree := filepath.Join(dir, "tree-"+rel.name)
	_, err := runProgram(t.Context(), buildTime, nil, "mmdebstrap", "--mode=root", "--variant=minbase", "--quiet",
		"--include=systemd,systemd-sysv,udev,kmod,procps,linux-image-cloud-amd64",
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*", rel.name, tree, rel.source)
	require.NoError(t, err)
	return tree
}

func hasUnit(tree, unit string) bool {
	found, _ := filepath.Glob(tree + "/*/systemd/system/" + unit)
	return len(found) > 0
}

// failingChecks returns the names of the checks that fail or warn in the tree, in the order of the report. An unknown verdict is an error.
func failingChecks(t *testing.T, nodegate, tree string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, nodegate, "check", "--root", tree, "--format", "json").Output()
	var report struct {
		Results []struct{ Name, Verdict, Error string }
	}
	require.True(t, json.Unmarshal(out, &report) == nil, "check: %v\n%s", err, out)
	require.True(t, len(report.Results) >= 5, "only %d checks of an image", len(report.Results))
	var names []string
	for _, r := range report.Results {
		switch r.Verdict {
		case "fail", "warn":
			names = append(names, r.Name)
		case "unknown":
			t.Errorf("%s: %s", r.Name, r.Error)
		}
	}
	return names
}

// breakage is a fault of an image, and the only check that must report it.
type breakage struct {
	name, want string
	do         func() (undo func())
}

func breakages(t *testing.T, tree string) []breakage {
	write := func(name, text string) func() func() {
		return func() func() {
			file := filepath.Join(tree, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
			return func() {
				require.NoError(t, os.Remove(file))
			}
		}
	}
	move := func(pattern string) func() func() {
		return func() func() {
			found, err := filepath.Glob(filepath.Join(tree, pattern))
			require.True(t, err == nil && len(found) == 1, "%s: %v, %v", pattern, found, err)
			require.NoError(t, os.Rename(found[0], found[0]+".away"))
			return func() {
				require.NoError(t, os.Rename(found[0]+".away", found[0]))
			}
		}
	}
	replace := func(name, text string) func() func() {
		return func() func() {
			file := filepath.Join(tree, name)
			before := require.ReadFile(t, file)
			putFile(t, file, text)
			return func() { putFile(t, file, string(before)) }
		}
	}
	return []breakage{
		{"swap", "image.swap", replace("etc/fstab", "/swapfile none swap sw 0 0\n")},
		{"kubelet's directory is mounted noexec", "image.mounts", replace("etc/fstab", "UUID=1 /var/lib/kubelet ext4 noexec 0 2\n")},
		{"fapolicyd is enabled", "image.fapolicyd", write("etc/systemd/system/multi-user.target.wants/fapolicyd.service", "")},
		{"the name of the build machine", "image.identity", replace("etc/hostname", "builder-7\n")},
		{"an iSCSI name", "image.identity", write("etc/iscsi/initiatorname.iscsi", "InitiatorName=iqn.1993-08.org.debian:01:1\n")},
		{"a kubeconfig with a token", "image.identity", write("etc/kubernetes/bootstrap-kubelet.conf", "users: [{user: {token: a}}]\n")},
		{"kubelet is not enabled", "kubelet.unit", move("etc/systemd/system/multi-user.target.wants/kubelet.service")},
		{"a module that modprobe.d forbids", "image.module.br_netfilter",
			write("etc/modprobe.d/no.conf", "install br_netfilter /bin/false\n")},
		{"a module whose file is gone", "image.module.br_netfilter", move("lib/modules/*/kernel/net/bridge/br_netfilter.ko*")},
		{"a later sysctl.d file that says otherwise", "sysctl.who-wins", write("etc/sysctl.d/zz-rival.conf", "net.ipv4.ip_forward = 0\n")},
		{"networkd is enabled", "networkd.foreign-routes", write("etc/systemd/system/multi-user.target.wants/systemd-networkd.service", "")},
		{"NetworkManager is enabled", "networkmanager.cni-links", write("etc/systemd/system/multi-user.target.wants/NetworkManager.service", "")},
		{"nm-cloud-setup is enabled", "nm-cloud-setup", write("etc/systemd/system/timers.target.wants/nm-cloud-setup.timer", "")},
		{"firewalld is enabled", "firewalld", write("etc/systemd/system/multi-user.target.wants/firewalld.service", "")},
		{"the apply unit is not enabled", "image.units", move("etc/systemd/system/multi-user.target.wants/nodegate-apply.service")},
		{"SSH host keys of the machine that baked it", "image.identity", write("etc/ssh/ssh_host_ed25519_key", "KEY\n")},
		{"kubelet's drop-in is gone", "image.units", move("etc/systemd/system/kubelet.service.d/10-nodegate.conf")},
	}
}
