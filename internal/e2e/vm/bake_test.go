//go:build vm

package vm

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestBake bakes the node image as docs/guides/bake-an-ami.md describes, and boots two machines from the result, one of them for a
// scenario. An image that does not pass fails the build, and leaves its report.
func TestBake(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	for _, program := range []string{cmp.Or(os.Getenv("PACKER"), "packer"), "qemu-img", "ssh-keygen"} {
		hosttest.NeedProgram(t, program)
	}
	t.Run("good", func(t *testing.T) {
		b := newBake(t, r)
		out, err := b.Run(t.Context(), b.prepareTree(t))
		require.True(t, err == nil, "packer build: %v\n%s", err, out)
		assert.Equal(t, b.readReport(t).Verdict, "pass", "the verdict of the report beside the image is")
		b.checkManifest(t)
		b.checkNoIdentity(t)
		assert.NoError(t, b.bootCopy(t, r, "installed-into-the-image", 2), "the baked image")
		one, two := b.readIdentity(t), b.readIdentity(t)
		for what, of := range one {
			assert.True(t, of != "" && of != two[what], "two machines of one image have the same %s: %q", what, of)
		}
	})
	t.Run("broken", func(t *testing.T) {
		b := newBake(t, r)
		tree := b.prepareTree(t)
		putFile(t, tree+"/etc/modprobe.d/rival.conf", "install br_netfilter /bin/false\n")
		mustRun(t, "ssh-keygen", "-A", "-f", tree) // nothing creates these keys at boot: the bake keeps them, and the check finds them
		out, err := b.Run(t.Context(), tree)
		require.True(t, err != nil, "the build of a broken image passed:\n%s", out)
		for _, why := range []string{"image.module.br_netfilter", "image.identity", "/etc/ssh/ssh_host_ed25519_key"} {
			assert.Contains(t, out, why, "the output of the build lacks the reason")
		}
		assert.Equal(t, b.readReport(t).Verdict, "fail", "the verdict of the report of the failed build is")
		left, _ := filepath.Glob(b.Out() + "/disk/*")
		assert.True(t, len(left) == 0, "the failed build left %v", left)
	})
}

// bake is a build with methods that test its image.
type bake struct{ Bake }

func newBake(t *testing.T, r Runner) bake {
	t.Helper()
	dir, err := os.MkdirTemp(r.Scratch, "bake-")
	require.NoError(t, err)
	return bake{Bake{
		Base: r.Base, Repository: mustAbs(t, repository), Nodegate: r.Nodegate, Policy: guideBlock(t, "hcl node.hcl"), Dir: dir,
	}}
}

// prepareTree returns the node image, with a networkd that leaves the CNI plugin's routes alone.
func (b bake) prepareTree(t *testing.T) string {
	t.Helper()
	tree := filepath.Join(b.Dir, "tree")
	require.NoError(t, b.Base.Clone(t.Context(), tree))
	putFile(t, tree+"/etc/systemd/networkd.conf.d/cni.conf", "[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n")
	return tree
}

func putFile(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
}

func guideBlock(t *testing.T, words string) string {
	t.Helper()
	text, err := GuideBlock(repository, words)
	require.NoError(t, err)
	return text
}

// bootCopy boots a copy of the baked disk, and runs the first boots of a scenario on it.
func (b bake) bootCopy(t *testing.T, r Runner, scenario string, boots int) error {
	t.Helper()
	s, err := loadScenario(filepath.Join("scenarios", scenario))
	require.NoError(t, err)
	require.True(t, s.Prepare == "" && s.Policy == "" && len(s.Boots) >= boots, "%s needs an image other than the baked one", scenario)
	r.Log = t.Logf
	return r.bootAll(t.Context(), b.copyMachine(t), s.Boots[:boots])
}

// copyMachine returns a machine with a copy of the baked disk.
func (b bake) copyMachine(t *testing.T) Machine {
	t.Helper()
	m := Machine{Base: b.Base, Disk: filepath.Join(b.Dir, "disk.img")}
	mustRun(t, "qemu-img", "convert", "-O", "raw", b.Image(), m.Disk)
	return m
}
