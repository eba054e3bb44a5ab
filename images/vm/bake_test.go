//go:build vm

package vm

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"nodegate/internal/host/hosttest"
)

const bakeTime = 10 * time.Minute

// network makes the node ask QEMU's own DHCP server; no packet of it leaves the QEMU process.
const network = "[Match]\nName=eth0\n\n[Network]\nDHCP=ipv4\n"

// TestBake bakes the node image as docs/guides/bake-an-ami.md says, with the Packer that PACKER names, else Debian's, and boots
// what came out as two machines, of which one goes through a scenario. An image that does not hold fails the build, and leaves
// its report.
func TestBake(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	for _, program := range []string{cmp.Or(os.Getenv("PACKER"), "packer"), "qemu-img", "ssh-keygen"} {
		hosttest.NeedProgram(t, program)
	}
	b := newBake(t, r)
	t.Run("good", func(t *testing.T) {
		out, err := b.packer(t, "")
		if err != nil {
			t.Fatalf("packer build: %v\n%s", err, out)
		}
		if !strings.Contains(out, "nodegate: pass  (stage boot,") {
			t.Errorf("the image was not booted before it ships:\n%s", out)
		}
		if verdict := b.report(t).Verdict; verdict != "pass" {
			t.Errorf("the report beside the image says %q", verdict)
		}
		b.manifest(t)
		b.shared(t)
		if err := b.boot(t, r, "installed-into-the-image", 2); err != nil {
			t.Errorf("the baked image: %v", err)
		}
		one, two := b.identity(t, r), b.identity(t, r)
		for what, of := range one {
			if of == "" || of == two[what] {
				t.Errorf("two machines of one image have the same %s: %q", what, of)
			}
		}
	})
	t.Run("broken", func(t *testing.T) {
		out, err := b.packer(t, "install br_netfilter /bin/false\n")
		if err == nil {
			t.Fatalf("the build of a broken image went through:\n%s", out)
		}
		for _, why := range []string{"image.module.br_netfilter", "image.identity", "rm -rf /etc/ssh/ssh_host_"} {
			if !strings.Contains(out, why) {
				t.Errorf("the build does not say why it failed, %s:\n%s", why, out)
			}
		}
		if verdict := b.report(t).Verdict; verdict != "fail" {
			t.Errorf("the report of the failed build says %q", verdict)
		}
		if left, _ := filepath.Glob(b.out + "/disk/*"); len(left) > 0 {
			t.Errorf("the failed build left %v", left)
		}
	})
}

// bake is a folder for one build after the other.
type bake struct {
	runner              Runner
	dir, out, key, disk string
}

func newBake(t *testing.T, r Runner) *bake {
	t.Helper()
	dir, err := os.MkdirTemp(r.Scratch, "bake-")
	if err != nil {
		t.Fatal(err)
	}
	b := &bake{runner: r, dir: dir, out: filepath.Join(dir, "baked"), key: filepath.Join(dir, "id"), disk: filepath.Join(dir, "base.qcow2")}
	root, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	mustRun(t, "mkdir", dir+"/dist", dir+"/bin")
	mustRun(t, "ln", "-s", r.Nodegate, dir+"/dist/nodegate-linux-amd64")
	mustRun(t, "ln", "-s", root+"/packer.pkr.hcl", root+"/images", dir)
	if packer := os.Getenv("PACKER"); packer != "" {
		mustRun(t, "ln", "-s", packer, dir+"/bin/packer")
	}
	if err := os.WriteFile(dir+"/node.hcl", []byte(guideBlock(t, "hcl node.hcl")), 0o644); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", b.key)
	return b
}

// base makes the disk that is baked: the node image with SSH and a network; with a rival file also with SSH host keys of its own.
func (b *bake) base(t *testing.T, rival string) {
	t.Helper()
	tree := filepath.Join(b.dir, "tree")
	if err := b.runner.Base.Clone(t.Context(), tree); err != nil {
		t.Fatal(err)
	}
	public, err := os.ReadFile(b.key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"root/.ssh/authorized_keys":            string(public),
		"etc/systemd/network/50-eth0.network":  network,
		"etc/systemd/networkd.conf.d/cni.conf": "[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n",
		"etc/modprobe.d/rival.conf":            rival,
	}
	if rival == "" {
		files["etc/systemd/system/ssh.service.d/keygen.conf"] = guideBlock(t, "ini keygen.conf")
	} else { // keys that nothing makes anew at boot: the bake leaves them, and the check finds them
		mustRun(t, "ssh-keygen", "-A", "-f", tree)
	}
	for name, text := range files {
		file := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustRun(t, "chmod", "755", tree+"/etc/systemd/network", tree+"/etc/systemd/networkd.conf.d")
	mustRun(t, "chmod", "644", tree+"/etc/systemd/network/50-eth0.network", tree+"/etc/systemd/networkd.conf.d/cni.conf",
		tree+"/etc/modprobe.d/rival.conf")
	mustRun(t, "rm", tree+"/etc/systemd/system/ssh.service")
	mustRun(t, "systemctl", "--root="+tree, "enable", "ssh.service", "systemd-networkd.service")
	raw := filepath.Join(b.dir, "base.img")
	if err := MakeDisk(t.Context(), tree, raw); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "qemu-img", "convert", "-O", "qcow2", raw, b.disk)
	mustRun(t, "rm", "-r", raw, tree)
}

// packer runs a build on a base with the rival file.
func (b *bake) packer(t *testing.T, rival string) (string, error) {
	t.Helper()
	b.base(t, rival)
	if err := os.RemoveAll(b.out); err != nil {
		t.Fatal(err)
	}
	arguments, err := json.Marshal([][]string{
		{"-kernel", b.runner.Base.Kernel}, {"-initrd", b.runner.Base.Initrd}, // the node image has no boot loader
		{"-append", "no_timer_check root=/dev/vda rw console=ttyS0 net.ifnames=0"}, {"-m", "1024M"}, {"-smp", "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	direct, err := json.Marshal([]string{
		"--kernel", b.runner.Base.Kernel, "--initrd", b.runner.Base.Initrd, "--cmdline", "no_timer_check root=/dev/vda rw console=ttyS0",
	})
	if err != nil {
		t.Fatal(err)
	}
	// The guide's words for current Packer, or for Debian's.
	block := "sh debian"
	if os.Getenv("PACKER") != "" {
		block = "sh qemu"
	}
	env := []string{
		"PATH=" + b.dir + "/bin:" + os.Getenv("PATH"), "PACKER_PLUGIN_PATH=" + os.Getenv("PACKER_PLUGIN_PATH"),
		"PACKER_CACHE_DIR=" + b.dir + "/cache", "PACKER_CONFIG_DIR=" + b.dir, "CHECKPOINT_DISABLE=1", "PACKER_NO_COLOR=1",
		"PKR_VAR_accelerator=tcg", "PKR_VAR_qemu_args=" + string(arguments),
		"PKR_VAR_boot=true", "PKR_VAR_boot_args=" + string(direct),
	}
	// In a network namespace of its own nothing is there to be reached but loopback.
	return run(t.Context(), bakeTime, env, "unshare", "--net", "sh", "-euc", `ip link set lo up; cd "$1"; eval "$2"`, "sh", b.dir,
		guideBlock(t, block))
}

// guideBlock is the text of the guide's only block with these words.
func guideBlock(t *testing.T, words string) string {
	t.Helper()
	text, err := os.ReadFile(repository + "/docs/guides/bake-an-ami.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?ms)^```"+words+"\n(.*?)^```").FindAllStringSubmatch(string(text), -1)
	if len(found) != 1 {
		t.Fatalf("the guide has %d blocks %q", len(found), words)
	}
	return found[0][1]
}

// boot boots a copy of what was baked, and puts it through the first boots of a scenario.
func (b *bake) boot(t *testing.T, r Runner, scenario string, boots int) error {
	t.Helper()
	s, err := load(filepath.Join("scenarios", scenario))
	if err != nil {
		t.Fatal(err)
	}
	if s.Prepare != "" || s.Policy != "" || len(s.Boots) < boots {
		t.Fatalf("%s needs another image than the baked one", scenario)
	}
	m := Machine{Base: r.Base, Disk: filepath.Join(b.dir, "disk.img")}
	mustRun(t, "qemu-img", "convert", "-O", "raw", b.out+"/disk/node.qcow2", m.Disk)
	r.Log = t.Logf
	return r.boots(t.Context(), m, s.Boots[:boots])
}
