package config_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// onDisk writes the files below a new root directory.
func (t tree) onDisk(tb testing.TB) string {
	tb.Helper()
	root := tb.TempDir()
	for name, content := range t {
		at := filepath.Join(root, name)
		require.NoError(tb, os.MkdirAll(filepath.Dir(at), 0o755))
		var err error
		if to, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(to, at)
		} else {
			err = os.WriteFile(at, []byte(content), 0o644)
		}
		require.NoError(tb, err)
	}
	return root
}

// contested is a tree in which every rule of precedence decides a value. No glob matches
// conf/default: the kernel copies that value to every interface whose own value was never written,
// which is not a matter of precedence.
var contested = tree{
	"/usr/lib/sysctl.d/50-default.conf": "net.ipv4.conf.[nl]*.rp_filter = 2\nnet.ipv4.tcp_retries1 = 4\n",
	"/etc/sysctl.d/10-a.conf":           "net.ipv4.conf.n*.rp_filter = 1\nnet.ipv4.conf.ng0.rp_filter = 0\n",
	"/etc/sysctl.d/20-b.conf":           "-net.ipv4.conf.ng1.rp_filter\nnet.ipv4.conf.[!nad]*.log_martians = 1\n",
	"/etc/sysctl.d/30-c.conf":           "net.ipv4.ip_default_ttl = 70\n",
	"/run/sysctl.d/30-c.conf":           "net.ipv4.ip_default_ttl = 71\n",
	"/run/sysctl.d/35-run.conf":         "net.ipv4.tcp_retries2 = 9\n",
	"/etc/sysctl.d/40-d.conf":           "net.ipv4.tcp_fin_timeout = 20\n-net.ipv4.tcp_fin_timeout\n",
	"/etc/sysctl.d/41-d.conf":           "net/ipv4/tcp_keepalive_time = 100\nnet.ipv4.tcp_keepalive_time=200\n",
	"/etc/sysctl.d/60-z.conf":           "-> /dev/null",
	"/usr/lib/sysctl.d/60-z.conf":       "net.ipv4.tcp_orphan_retries = 5\n",
	"/etc/sysctl.d/99-sysctl.conf":      "-> ../sysctl.conf",
	"/etc/sysctl.conf":                  "net.ipv4.ip_forward = 0\n",
	"/etc/sysctl.d/99-zz-own.conf":      "net.ipv4.ip_forward = 1\n",
}

var contestedKeys = []string{
	"net/ipv4/conf/ng0/rp_filter", "net/ipv4/conf/ng1/rp_filter", "net/ipv4/conf/lo/rp_filter", "net/ipv4/conf/ng0/log_martians",
	"net/ipv4/conf/lo/log_martians", "net/ipv4/tcp_retries1", "net/ipv4/tcp_retries2", "net/ipv4/ip_default_ttl",
	"net/ipv4/tcp_fin_timeout",
	"net/ipv4/tcp_keepalive_time", "net/ipv4/tcp_orphan_retries", "net/ipv4/ip_forward",
}

// TestSysctlPrecedence runs the real programs in separate namespaces to find the line that wins.
// This package must agree for every key.
func TestSysctlPrecedence(t *testing.T) {
	for _, program := range []struct {
		name, command string
		load          func(config.Files) (config.Sysctls, error)
		want          map[string]string // values that do not follow from the others
	}{
		{"systemd-sysctl", "/usr/lib/systemd/systemd-sysctl", config.SystemdSysctls, map[string]string{"net/ipv4/ip_forward": "1"}},
		{"procps", "sysctl --system", config.ProcpsSysctls, map[string]string{"net/ipv4/ip_forward": "0",
			"net/ipv4/tcp_fin_timeout": "20"}},
	} {
		t.Run(program.name, func(t *testing.T) {
			root := contested.onDisk(t)
			h, err := host.Open(root)
			require.NoError(t, err)
			sysctls, err := program.load(h.Files)
			require.NoError(t, err)
			for key, want := range program.want {
				w, _ := sysctls.Winner(key)
				equal(t, key, want, w.Value)
			}
			before, after := applied(t, root, program.command)
			for _, key := range contestedKeys {
				want := before[key]
				if w, ok := sysctls.Winner(key); ok {
					want = w.Value
				}
				equal(t, key, want, after[key])
			}
		})
	}
}

// applied runs a program with the tree's directories mounted over the machine's.
func applied(t *testing.T, root, command string) (before, after map[string]string) {
	t.Helper()
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, strings.Fields(command)[0])
	hosttest.NeedProgram(t, "ip")
	script := `set -e
mount --make-rprivate /
ip link add ng0 type veth peer name ng1
for d in etc run usr/lib; do mkdir -p /$d/sysctl.d; mount --bind "$0/$d/sysctl.d" /$d/sysctl.d; done
if [ /lib/sysctl.d -ef /usr/lib/sysctl.d ]; then :; elif [ -d /lib/sysctl.d ]; then mount -t tmpfs none /lib/sysctl.d; fi
mount --bind "$0/etc/sysctl.conf" /etc/sysctl.conf
show() { for k in $KEYS; do echo "$1 $k $(cat /proc/sys/$k)"; done; }
show before; $COMMAND >/dev/null 2>&1 || true; show after`
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "sh", "-c", script, root)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "COMMAND=" + command, "KEYS=" + strings.Join(contestedKeys, " ")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("in namespaces: %v: %s", err, out)
	}
	before, after = map[string]string{}, map[string]string{}
	for line := range strings.Lines(string(out)) {
		var when, key, value string
		if _, err := fmt.Sscan(line, &when, &key, &value); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		map[string]map[string]string{"before": before, "after": after}[when][key] = value
	}
	return before, after
}

// TestModprobeConfig compares with modprobe --showconfig.
func TestModprobeConfig(t *testing.T) {
	hosttest.NeedProgram(t, "modprobe")
	files := tree{"/etc/modprobe.d/a.conf": "blacklist foo\\\n-bar\ninstall br-netfilter /bin/false # why\n#c \\\ninstall q /bin/true\n" +
		"\tinstall w-x /bin/true\n",
		"/etc/modprobe.d/b.conf": "install br_netfilter /bin/true\nblacklist z\n"}
	out, err := exec.CommandContext(t.Context(), "modprobe", "--showconfig", "-C", files.onDisk(t)+"/etc/modprobe.d").Output()
	require.NoError(t, err)
	lines, err := config.ModprobeConfig(files)
	require.NoError(t, err)
	for _, command := range []string{"blacklist", "install"} {
		var want, got []string
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, command+" ") {
				want = append(want, strings.TrimSpace(line))
			}
		}
		for _, l := range lines {
			if l.Command == command {
				got = append(got, strings.TrimSpace(command+" "+l.Module+" "+l.Rest))
			}
		}
		equal(t, command, want, got)
	}
}

// TestWithDropIns compares with systemd-analyze cat-config.
func TestWithDropIns(t *testing.T) {
	hosttest.NeedProgram(t, "systemd-analyze")
	files := tree{
		"/etc/systemd/networkd.conf":                      "[Network]\n",
		"/etc/systemd/networkd.conf.d/20-b.conf":          "[Network]\nManageForeignRoutes=no\n",
		"/usr/lib/systemd/networkd.conf.d/10-a.conf":      "[Network]\nManageForeignRoutes=yes\n",
		"/usr/lib/systemd/networkd.conf.d/20-b.conf":      "[Network]\nManageForeignRoutes=yes\n",
		"/run/systemd/networkd.conf.d/30-masked.conf":     "-> /dev/null",
		"/usr/lib/systemd/networkd.conf.d/30-masked.conf": "[Network]\n",
	}
	root := files.onDisk(t)
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "cat-config", "--root="+root, "systemd/networkd.conf").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var want, got []string
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "# "+root); ok && !strings.Contains(name, "masked") {
			want = append(want, name)
		}
	}
	found, err := config.WithDropIns(files, config.Dirs("systemd"), "networkd.conf")
	require.NoError(t, err)
	for _, f := range found {
		got = append(got, f.Path)
	}
	equal(t, "files", want, got)
}
