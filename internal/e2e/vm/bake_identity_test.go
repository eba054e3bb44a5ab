//go:build vm

package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// checkNoIdentity fails if the baked disk contains files that must be unique per machine. The shutdown must not write them again either.
func (b bake) checkNoIdentity(t *testing.T) {
	t.Helper()
	disk, tree := b.copyMachine(t).Disk, filepath.Join(b.Dir, "baked-tree")
	mustRun(t, "mkdir", tree)
	mustRun(t, "debugfs", "-R", "rdump /etc "+tree, disk)
	mustRun(t, "debugfs", "-R", "rdump /var "+tree, disk)
	mustRun(t, "debugfs", "-R", "rdump /root "+tree, disk)
	mustRun(t, "mkdir", "-p", tree+"/usr/lib")
	mustRun(t, "debugfs", "-R", "rdump /usr/lib/systemd "+tree+"/usr/lib", disk)
	out, err := exec.CommandContext(t.Context(), b.Nodegate, "check", "--root", tree, "--policy",
		identityPolicy(t, b.Dir)).CombinedOutput()
	assert.True(t, err == nil && !strings.Contains(string(out), "sshd will not start"), "the baked disk: %v\n%s", err, out)
	mustRun(t, "rm", "-r", tree)
}

func identityPolicy(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "identity.hcl")
	require.NoError(t, os.WriteFile(name, []byte("check \"image.identity\" {}\n"), 0o600))
	return name
}

// readIdentity boots a copy of the baked disk until its node is proven, and returns everything that must be unique per machine.
func (b bake) readIdentity(t *testing.T) map[string]string {
	t.Helper()
	g, err := b.copyMachine(t).Boot(t.Context(), "")
	require.NoError(t, err)
	defer g.Kill()
	ask := func(script string) string {
		ctx, cancel := context.WithTimeout(t.Context(), bootScript)
		defer cancel()
		out, err := g.Run(ctx, library+script)
		require.True(t, err == nil && out.Code == 0, "%s: exit %d, %v\n%s", script, out.Code, err, out.Stderr)
		return strings.TrimSpace(out.Stdout)
	}
	ask("first_start; saw 1; within 120 settled; within 60 test -s /etc/ssh/ssh_host_ed25519_key.pub")
	ask(`within 60 bash -c 'exec 3<>/dev/tcp/127.0.0.1/22; read -r -t 5 -u 3 banner; [[ $banner == SSH-2.0* ]]'`) // sshd answers
	return map[string]string{
		"machine-id":  ask("cat /etc/machine-id"),
		"host key":    ask("cut -d' ' -f2 /etc/ssh/ssh_host_ed25519_key.pub"),
		"random seed": ask("sha256sum </var/lib/systemd/random-seed"),
	}
}

type bakeReport struct{ Verdict, Stage string }

func (b bake) readReport(t *testing.T) bakeReport {
	t.Helper()
	var rep bakeReport
	readJSON(t, b.Out()+"/qemu-report.json", &rep)
	assert.Equal(t, rep.Stage, "image", "the report has the stage")
	return rep
}

func (b bake) checkManifest(t *testing.T) {
	t.Helper()
	var m struct {
		Builds []struct {
			Files []struct{ Name string }
			Data  map[string]string `json:"custom_data"`
		}
	}
	readJSON(t, b.Out()+"/manifest.json", &m)
	assert.Equal(t, fmt.Sprintf("%+v", m), "{Builds:[{Files:[{Name:node.qcow2}] Data:map[report:qemu-report.json]}]}", "the manifest")
}

func readJSON(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	require.NoError(t, err)
}

func mustRun(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	require.True(t, err == nil, "%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
}
