package units_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nodegate/host"
	"nodegate/policy"
	"nodegate/units"
)

// manifest is everything a tree is: type, mode, owner, time and content.
func manifest(t *testing.T, root string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		line := fmt.Sprintf("%s %s %d:%d", strings.TrimPrefix(p, root)+"/", info.Mode(), st.Uid, st.Gid)
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += " -> " + to
		case info.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %x %s", sha256.Sum256(b), info.ModTime())
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// node makes a tree with something in the way of nearly every file: one that
// another tool wrote, with odd mode and owner, and a symbolic link.
func node(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, d := range []string{"etc/sysctl.d", "etc/systemd/system", "var/lib", "usr/local/bin"} {
		must(t, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	must(t, os.WriteFile(root+"/usr/local/bin/nodegate", []byte("an older one"), 0o700))
	must(t, os.Chmod(root+"/usr/local/bin/nodegate", 0o750|fs.ModeSetgid))
	if os.Getuid() == 0 {
		must(t, os.Chown(root+"/usr/local/bin/nodegate", 1234, 4321))
		must(t, os.Chmod(root+"/usr/local/bin/nodegate", 0o750|fs.ModeSetgid))
	}
	must(t, os.Symlink("../elsewhere.conf", root+"/etc/sysctl.d/99-zz-nodegate.conf"))
	return root
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, root string) *host.Tree {
	t.Helper()
	tree, err := host.OpenTree(root)
	must(t, err)
	t.Cleanup(tree.Close)
	return tree
}

func files(t *testing.T, text, binary string) []units.File {
	t.Helper()
	texts := []policy.File{{Name: "a.hcl", Text: []byte(text)}}
	p, diags := policy.Load(texts, policy.Options{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	f, err := units.Files(p, texts, []byte(binary))
	must(t, err)
	return f
}

const (
	policyOne = `module "overlay" {}
sysctl "net.bridge.bridge-nf-call-iptables" { value = 1 }
sysctl "fs.inotify.max_user_instances" { min = 512 }
`
	policyTwo = `sysctl "kernel.panic" { value = 10 }
gate { unit = "k3s.service" }
`
)

func TestInstallAndUninstall(t *testing.T) {
	root := node(t)
	tree := open(t, root)
	before := manifest(t, root)
	one, two := files(t, policyOne, "binary one"), files(t, policyTwo, "binary two")

	planned, err := units.Plan(tree, one, false)
	must(t, err)
	if after := manifest(t, root); after != before {
		t.Fatalf("Plan changed the tree:\n%s", cmp.Diff(before, after))
	}
	done, err := units.Install(tree, one, false)
	must(t, err)
	if d := cmp.Diff(planned, done); d != "" {
		t.Errorf("Install did not do what Plan said:\n%s", d)
	}
	installed := manifest(t, root)
	if again, err := units.Install(tree, one, false); err != nil || len(again) != 0 || manifest(t, root) != installed {
		t.Errorf("second install: %v, %v", again, err)
	}
	conf, err := os.ReadFile(root + "/etc/sysctl.d/99-zz-nodegate.conf")
	must(t, err)
	if !strings.Contains(string(conf), "net.bridge.bridge-nf-call-iptables = 1\n# fs.inotify.max_user_instances: at least 512;") {
		t.Errorf("sysctl.d:\n%s", conf)
	}
	modules, err := os.ReadFile(root + "/etc/modules-load.d/nodegate.conf")
	must(t, err)
	if !strings.HasSuffix(string(modules), "overlay\nbr_netfilter\n") {
		t.Errorf("modules-load.d:\n%s", modules)
	}

	// Another policy, for another unit: the old drop-in goes.
	_, err = units.Install(tree, two, false)
	must(t, err)
	if _, err := os.Stat(root + "/etc/systemd/system/kubelet.service.d/10-nodegate.conf"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the drop-in of the unit that waits no longer: %v", err)
	}
	_, err = units.Uninstall(tree, false)
	must(t, err)
	if d := cmp.Diff(before, manifest(t, root)); d != "" {
		t.Errorf("uninstall left a difference:\n%s", d)
	}
	if again, err := units.Uninstall(tree, false); err != nil || len(again) != 0 {
		t.Errorf("second uninstall: %v, %v", again, err)
	}
}

func TestSomebodyChangedAFile(t *testing.T) {
	root := node(t)
	tree := open(t, root)
	before := manifest(t, root)
	_, err := units.Install(tree, files(t, policyOne, "one"), false)
	must(t, err)
	changed := []string{root + "/etc/nodegate/policy.d/a.hcl", root + "/etc/modules-load.d/nodegate.conf"}
	for _, f := range changed {
		must(t, os.WriteFile(f, []byte("mine"), 0o644))
	}
	now := manifest(t, root)
	for what, try := range map[string]func(bool) error{
		"uninstall": func(force bool) error { _, err := units.Uninstall(tree, force); return err },
		"install":   func(force bool) error { _, err := units.Install(tree, files(t, policyTwo, "two"), force); return err },
	} {
		err := try(false)
		for _, f := range changed {
			if err == nil || !strings.Contains(err.Error(), f+": somebody has changed it") {
				t.Errorf("%s does not name %s: %v", what, f, err)
			}
		}
		if d := cmp.Diff(now, manifest(t, root)); d != "" {
			t.Errorf("%s refused and yet changed:\n%s", what, d)
		}
	}
	_, err = units.Uninstall(tree, true)
	must(t, err)
	if d := cmp.Diff(before, manifest(t, root)); d != "" {
		t.Errorf("uninstall --force left a difference:\n%s", d)
	}
}

// TestKilledAnywhere ends install and uninstall before each of their writes,
// and in the middle of each file, and lets the next run finish the job.
func TestKilledAnywhere(t *testing.T) {
	one, two := files(t, policyOne, "binary one"), files(t, policyTwo, "binary two")
	install := func(f []units.File) func(units.Tree) error {
		return func(tree units.Tree) error { _, err := units.Install(tree, f, false); return err }
	}
	uninstall := func(tree units.Tree) error { _, err := units.Uninstall(tree, false); return err }

	for _, c := range []struct {
		name          string
		setup, killed func(units.Tree) error
	}{
		{"install", func(units.Tree) error { return nil }, install(one)},
		{"upgrade", install(one), install(two)},
		{"uninstall", install(one), uninstall},
	} {
		t.Run(c.name, func(t *testing.T) {
			steps := 0
			for kill := 0; ; kill++ {
				finished := false
				for _, finish := range []string{"install", "uninstall"} {
					root := node(t)
					tree := open(t, root)
					before := manifest(t, root)
					must(t, c.setup(tree))
					k := &killer{Tree: tree, left: kill}
					finished = c.killed(k) == nil && !k.dead
					if finish == "install" {
						if err := reinstall(tree, two); err != nil {
							t.Fatalf("killed at write %d, then install: %v", kill, err)
						}
						want := freshly(t, two)
						if d := cmp.Diff(want, withoutTimes(manifest(t, root))); d != "" {
							t.Fatalf("killed at write %d, install finished wrong:\n%s", kill, d)
						}
					}
					must(t, uninstall(tree))
					if d := cmp.Diff(before, manifest(t, root)); d != "" {
						t.Fatalf("killed at write %d, then %s: uninstall left a difference:\n%s", kill, finish, d)
					}
				}
				if steps = kill; finished {
					break
				}
			}
			if steps < 10 {
				t.Errorf("only %d points to be killed at: the test does not see the writes", steps)
			}
		})
	}
}

func reinstall(tree units.Tree, f []units.File) error {
	_, err := units.Install(tree, f, false)
	return err
}

// freshly is what a fresh installation looks like, without what the journal
// remembers of earlier ones.
func freshly(t *testing.T, f []units.File) string {
	t.Helper()
	root := node(t)
	must(t, reinstall(open(t, root), f))
	return withoutTimes(manifest(t, root))
}

func withoutTimes(manifest string) string {
	var kept []string
	for _, l := range strings.Split(manifest, "\n") {
		if strings.Contains(l, "/var/lib/nodegate/") {
			continue // the order of the journal's entries is its history
		}
		// A directory that only an earlier policy needed may stay until uninstall.
		if strings.HasPrefix(l, "/etc/systemd/system/kubelet.service.d/ d") {
			continue
		}
		if words := strings.Fields(l); len(words) > 4 {
			l = strings.Join(words[:4], " ")
		}
		kept = append(kept, l)
	}
	return strings.Join(kept, "\n")
}

// killer is a tree whose process dies before its write number left: that write
// and all later ones do not happen, except that a file may be half staged.
type killer struct {
	units.Tree
	left int
	dead bool
}

var errDead = errors.New("killed")

func (k *killer) die() bool {
	k.dead = k.dead || k.left == 0
	k.left--
	return k.dead
}

func (k *killer) Mkdir(p string, mode fs.FileMode) error {
	if k.die() {
		return errDead
	}
	return k.Tree.Mkdir(p, mode)
}

func (k *killer) StageFile(p string, content []byte, mode fs.FileMode) error {
	if first := !k.dead; k.die() {
		if first {
			_ = k.Tree.StageFile(p, content[:len(content)/2], 0o600)
		}
		return errDead
	}
	return k.Tree.StageFile(p, content, mode)
}

func (k *killer) StageLink(p, target string) error {
	if k.die() {
		return errDead
	}
	return k.Tree.StageLink(p, target)
}

func (k *killer) Own(p string, n host.Node) error {
	if k.die() {
		return errDead
	}
	return k.Tree.Own(p, n)
}

func (k *killer) Commit(p string) error {
	if k.die() {
		return errDead
	}
	return k.Tree.Commit(p)
}

func (k *killer) Unstage(p string) error {
	if k.die() {
		return errDead
	}
	return k.Tree.Unstage(p)
}

func (k *killer) Remove(p string) error {
	if k.die() {
		return errDead
	}
	return k.Tree.Remove(p)
}

func TestNothingLeavesTheRoot(t *testing.T) {
	outside := t.TempDir()
	for name, prepare := range map[string]func(root string) error{
		"a directory that is an absolute link": func(root string) error { return os.Symlink(outside, root+"/etc/nodegate") },
		"a directory that is a link upwards":   func(root string) error { return os.Symlink("../../../../"+outside, root+"/etc/nodegate") },
		"a file where a directory goes":        func(root string) error { return os.WriteFile(root+"/etc/nodegate", nil, 0o644) },
		"a directory where a file goes": func(root string) error {
			return os.MkdirAll(root+"/etc/modules-load.d/nodegate.conf/x", 0o755)
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := node(t)
			must(t, prepare(root))
			before := manifest(t, root)
			_, err := units.Install(open(t, root), files(t, policyOne, "one"), false)
			if err == nil || !strings.Contains(err.Error(), root+"/etc/") {
				t.Errorf("the error names no path: %v", err)
			}
			if d := cmp.Diff(before, manifest(t, root)); d != "" {
				t.Errorf("it failed and yet changed:\n%s", d)
			}
			if names, _ := os.ReadDir(outside); len(names) > 0 {
				t.Errorf("it wrote outside the root: %v", names)
			}
		})
	}
}

func TestFullRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	root := t.TempDir()
	must(t, syscall.Mount("none", root, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { must(t, syscall.Unmount(root, syscall.MNT_DETACH)) })
	must(t, os.MkdirAll(root+"/var/lib", 0o755))
	before := manifest(t, root)
	_, err := units.Install(open(t, root), files(t, policyOne, strings.Repeat("x", 1<<20)), false)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), root+"/usr/local/bin/nodegate") {
		t.Errorf("a full root: %v", err)
	}
	if d := cmp.Diff(before, manifest(t, root)); d != "" {
		t.Errorf("it failed and yet changed:\n%s", d)
	}
}

func TestReadOnlyRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a read-only file system")
	}
	root := t.TempDir()
	must(t, syscall.Mount("none", root, "tmpfs", syscall.MS_RDONLY, ""))
	t.Cleanup(func() { must(t, syscall.Unmount(root, syscall.MNT_DETACH)) })
	_, err := units.Install(open(t, root), files(t, policyOne, "one"), false)
	if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), root+"/") {
		t.Errorf("a read-only root: %v", err)
	}
}

// TestSecondInstaller: two at a time do not mix.
func TestSecondInstaller(t *testing.T) {
	root := node(t)
	first := open(t, root)
	must(t, os.MkdirAll(root+"/var/lib/nodegate", 0o755))
	release, err := first.Lock("/var/lib/nodegate")
	must(t, err)
	if _, err := units.Install(open(t, root), files(t, policyOne, "one"), false); err == nil || !strings.Contains(err.Error(), "another nodegate is installing") {
		t.Errorf("while another one installs: %v", err)
	}
	release()
	_, err = units.Install(open(t, root), files(t, policyOne, "one"), false)
	must(t, err)
}

// TestLinkAsSystemctl compares the symbolic link with the one that systemd's
// own tool makes.
func TestLinkAsSystemctl(t *testing.T) {
	systemctl, err := exec.LookPath("systemctl")
	if err != nil {
		t.Skip("needs systemctl")
	}
	root := node(t)
	_, err = units.Install(open(t, root), files(t, policyOne, "one"), false)
	must(t, err)
	wants := root + "/etc/systemd/system/multi-user.target.wants"
	ours, err := os.Readlink(wants + "/nodegate-apply.service")
	must(t, err)
	must(t, os.RemoveAll(wants))
	if out, err := exec.Command(systemctl, "--root="+root, "enable", "nodegate-apply.service").CombinedOutput(); err != nil {
		t.Fatalf("systemctl enable: %v\n%s", err, out)
	}
	theirs, err := os.Readlink(wants + "/nodegate-apply.service")
	if err != nil || ours != theirs {
		t.Errorf("our link points to %q, systemctl's to %q (%v)", ours, theirs, err)
	}
}

// TestUnitsVerify asks systemd whether it understands what is installed.
func TestUnitsVerify(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze")
	}
	root := t.TempDir()
	_, err = units.Install(open(t, root), files(t, policyOne, "#!/bin/sh\n"), false)
	must(t, err)
	dir := root + "/etc/systemd/system/"
	must(t, os.WriteFile(dir+"kubelet.service", []byte("[Service]\nExecStart=/bin/true\n"), 0o644))
	cmd := exec.Command(analyze, "verify", "--man=no", dir+"kubelet.service", dir+"nodegate-apply.service")
	cmd.Env = append(slices.Clone(os.Environ()), "SYSTEMD_UNIT_PATH="+dir+":")
	out, _ := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		// The binary is below the root, not on this machine.
		if strings.Contains(line, "nodegate") && !strings.Contains(line, "is not executable") && !strings.Contains(line, "Failed to create") {
			t.Errorf("systemd-analyze verify: %s", line)
		}
	}
}
