package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestSnapshotOfTree: at each stage, a snapshot of a file tree with a kubelet has the result of the tree itself.
func TestSnapshotOfTree(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"usr/bin/kubelet": "#!/bin/sh\n", "etc/os-release": "ID=debian\n", "usr/lib/modules/6.1.0/modules.dep": "",
		"etc/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml\n",
		"var/lib/kubelet/config.yaml":        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n",
	} {
		name = filepath.Join(dir, name)
		require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o755)))
	}
	run := func(args ...string) (code int, verdicts string) {
		out, err := exec.CommandContext(t.Context(), "nodegate", args...).Output()
		if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
			t.Fatal(err)
		} else if failed != nil {
			code = failed.ExitCode()
		}
		for line := range strings.Lines(string(out)) {
			if name, verdict, is := strings.Cut(line, `name="`); is && strings.HasPrefix(name, "nodegate_requirement") {
				verdicts += verdict
			}
		}
		return code, verdicts
	}
	for _, stage := range []string{"image", "boot", "run", "all"} {
		file := filepath.Join(dir, stage+".json")
		code, want := run("check", "--root", dir, "--stage", stage, "--policy", "../../policy/builtin/kubernetes.hcl", "-f", "prometheus")
		if recorded, _ := run("snapshot", "--root", dir, "--stage", stage, "--policy", "../../policy/builtin/kubernetes.hcl", "-o", file); recorded != 0 {
			t.Errorf("%s: snapshot exits %d", stage, recorded)
			continue
		}
		again, got := run("check", "--snapshot", file, "--stage", stage, "--policy", "../../policy/builtin/kubernetes.hcl", "-f", "prometheus")
		assert.True(t, want != "" && again == code && got == want,
			"%s: the snapshot exits %d with\n%sthe tree %d with\n%s", stage, again, got, code, want)
	}
}
