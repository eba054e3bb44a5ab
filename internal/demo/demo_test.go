// Package demo tests demo.sh.
package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestDemo: a wrong node is held and opens by itself; a Service fails and is cured. In a chroot the gate is left out,
// with the reason, and nothing is written to /run.
func TestDemo(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "unshare")
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "../../cmd/nodegate").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	script, err := os.ReadFile("demo.sh")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "demo"), script, 0o755))
	// The Service is left out on a kernel without br_netfilter, and where a namespace may not load what the probe needs.
	const service = `(?s)(# +Left out: this kernel|reply-untranslated.*the reply came back translated)`
	for name, c := range map[string]struct{ script, want string }{
		"namespaces": {`exec "$1/demo" "$1/nodegate"`,
			`(?s)held by sysctl.net.ipv4.ip_forward.*3 seconds later.*node proven.*` + service + `.*restored: \d.*# On a node`},
		"chroot": {`
			mkdir "$1/tree"; mount -t tmpfs tmpfs "$1/tree"; root=$1/tree/root
			for dir in usr bin sbin lib lib64 etc proc sys dev; do
				if [ -L /$dir ]; then cp -a /$dir "$root/"; elif [ -e /$dir ]; then mkdir -p "$root/$dir"; mount --rbind /$dir "$root/$dir"; fi
			done
			mkdir "$root/tmp" "$root/run"; cp "$1/demo" "$1/nodegate" "$root/"
			chroot "$root" /demo /nodegate
			[ -z "$(ls "$root/run")" ]`,
			`(?s)Left out in a chroot: the gate writes to the console.*` + service + `.*# On a node`},
	} {
		cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-euc", c.script, "sh", dir)
		cmd.Env = append(os.Environ(), "TMPDIR=/tmp")
		out, err := cmd.CombinedOutput()
		assert.True(t, err == nil && regexp.MustCompile(c.want).Match(out), "%s: %v\n%s", name, err, out)
	}
}
