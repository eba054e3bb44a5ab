//go:build release

package main

import (
	"bytes"
	"debug/buildinfo"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestSigned: the tools that everybody has verify the release, and refuse one that was changed. SECURITY.md: release.
func TestSigned(t *testing.T) {
	r := releaseMade(t)
	dir := filepath.Join(t.TempDir(), "dist")
	say(t, "cp", "-r", r.dir, dir)
	verify := func(script string, want bool) {
		t.Helper()
		code, out := try(t, "sh", "-c", `cd "$1" && `+script, "sh", dir, r.public)
		assert.True(t, (code == 0) == want, "%s: exit status %d, want success: %t\n%s", script, code, want, out)
	}
	const sums = `minisign -Vm SHA256SUMS -p "$2" && sha256sum --strict -c SHA256SUMS`
	verify(sums, true)
	image := filepath.Join(dir, "nodegate-image.oci.tar")
	kept := string(require.ReadFile(t, image))
	write(t, image, kept+"x")
	verify(sums, false)
	write(t, image, kept)
	verify(sums, true)
	list := filepath.Join(dir, "SHA256SUMS")
	write(t, list, string(require.ReadFile(t, list))+"\n")
	verify(sums, false)
}

// TestSignedEncrypted: a key with a password signs; with a wrong password nothing is signed.
func TestSignedEncrypted(t *testing.T) {
	hosttest.NeedProgram(t, "minisign")
	keys := t.TempDir()
	generate := exec.Command("minisign", "-G", "-p", keys+"/pub", "-s", keys+"/secret")
	generate.Stdin = strings.NewReader("a password\na password\n")
	require.NoError(t, command(generate))
	t.Setenv("NODEGATE_SIGNING_KEY", keys+"/secret")
	r := release{version: "v1.0.0", dir: t.TempDir()}
	write(t, filepath.Join(r.dir, sumsName), "sums\n")
	assert.ErrorContains(t, r.sign(), "Wrong password", "without the password")
	t.Setenv("NODEGATE_SIGNING_PASSWORD", "a password")
	require.NoError(t, r.sign())
	assert.Contains(t, say(t, "minisign", "-Vm", filepath.Join(r.dir, sumsName), "-p", keys+"/pub"), "nodegate v1.0.0 timestamp:",
		"the trusted comment")
}

// podmanHere makes podman keep all files in a directory that the test removes. It uses runc, because crun lacks cgroups in hybrid mode,
// and sets limits that need no privileges.
func podmanHere(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir+"/containers.conf", `[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
tmp_dir = "`+dir+`/tmp"
`)
	write(t, dir+"/storage.conf", `[storage]
driver = "vfs"
graphroot = "`+dir+`/graph"
runroot = "`+dir+`/run"
`)
	t.Setenv("CONTAINERS_CONF", dir+"/containers.conf")
	t.Setenv("CONTAINERS_STORAGE_CONF", dir+"/storage.conf")
	t.Cleanup(func() { // podman has mounted file systems and written files of other owners; the test's context has ended
		assert.NoError(t, command(exec.Command("podman", "rmi", "--all", "--force")))
	})
}

// TestImage: the image runs and inspects a machine mounted into it.
func TestImage(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "podman")
	hosttest.NeedProgram(t, "runc")
	r := releaseMade(t)
	root := tree(t)
	say(t, r.the(t, "nodegate-linux-amd64"), "install", "--root", root)
	podmanHere(t)
	code, out := try(t, "podman", "load", "-i", r.the(t, "nodegate-image.oci.tar"))
	require.True(t, code == 0, "podman load: %s", out)
	run := func(args ...string) (int, string) {
		return try(t, "podman", append([]string{"run", "--rm", "--pull", "never", "--network", "none", "-v", root + ":/host"}, args...)...)
	}
	const image = "localhost/nodegate:1.0.0"
	if code, out := run(image, "version"); code != 0 || !strings.Contains(out, "nodegate v1.0.0 linux/amd64") {
		t.Errorf("version: exit status %d\n%s", code, out)
	}
	if code, out := run(image, "check", "--root", "/host"); code != 0 || !strings.Contains(out, "nodegate: pass  (stage image") {
		t.Errorf("check of a good tree: exit status %d\n%s", code, out)
	}
	sayIn(t, root, "/usr/local/bin/nodegate", "uninstall")
	if code, out := run(image, "check", "--root", "/host"); code != 1 || !strings.Contains(out, "image.units") {
		t.Errorf("check of a bare tree: exit status %d\n%s", code, out)
	}
	if code, out := run(image, "install", "--root", "/host"); code != 0 {
		t.Errorf("install into the mounted tree: exit status %d\n%s", code, out)
	}
	sayIn(t, root, "/usr/local/bin/nodegate", "check", "--stage", "image")
	write(t, root+"/root/bad.hcl", "modul \"overlay\" {}\n")
	if code, out := run(image, "lint", "/host/root/bad.hcl"); code != 2 || !strings.Contains(out, "bad.hcl:1:1") {
		t.Errorf("lint: exit status %d\n%s", code, out)
	}
}

// TestUnpacked: skopeo and umoci find each architecture's program in the image.
func TestUnpacked(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "skopeo")
	hosttest.NeedProgram(t, "umoci")
	r := releaseMade(t)
	for _, arch := range architectures() {
		image, to := t.TempDir()+":"+arch, filepath.Join(t.TempDir(), "bundle")
		say(t, "skopeo", "copy", "--override-arch", arch, "oci-archive:"+r.the(t, "nodegate-image.oci.tar"), "oci:"+image)
		say(t, "umoci", "unpack", "--image", image, to)
		assert.True(t, string(require.ReadFile(t, to+"/rootfs/nodegate")) == string(require.ReadFile(t, r.the(t, "nodegate-linux-"+arch))),
			"%s: the image has another program", arch)
	}
}

// TestARM64: under qemu-user the arm64 binary prints the same output as the other one.
func TestARM64(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "qemu-aarch64-static")
	r := releaseMade(t)
	root := tree(t)
	amd64, arm64 := r.the(t, "nodegate-linux-amd64"), r.the(t, "nodegate-linux-arm64")
	assert.Contains(t, say(t, "qemu-aarch64-static", arm64, "version"), "linux/arm64", "version")
	before := picture(t, root)
	say(t, "qemu-aarch64-static", arm64, "install", "--root", root)
	for _, args := range [][]string{
		{"check", "--root", root}, {"check", "--root", root, "-v", "--format", "json"}, {"policy", "list"}, {"policy", "show", "kubernetes"},
		{"policy", "show", "--effective"},
		{"explain", "vxlan.checksum"}, {"lint", root + "/etc/nodegate/policy.d"}, {"fmt", "--help"},
		{"audit", "--rules", "../../internal/audit/proxy/testdata/iptables-save.txt"},
		{"install", "--root", root, "--dry-run", "--policy", "nosuch"},
	} {
		code1, out1 := try(t, amd64, args...)
		code2, out2 := try(t, "qemu-aarch64-static", append([]string{arm64}, args...)...)
		d := cmp.Diff(steady(out1), steady(out2))
		assert.True(t, d == "" && code1 == code2, "%v: exit status %d on amd64, %d on arm64 (-amd64 +arm64):\n%s", args, code1, code2, d)
	}
	say(t, "qemu-aarch64-static", arm64, "uninstall", "--root", root)
	assert.Diff(t, picture(t, root), before, "install and uninstall left (-before +after)")
}

// TestModules: the list has every module of the binary with its sum. No library of the tests is in the binary.
func TestModules(t *testing.T) {
	r := releaseMade(t)
	for _, arch := range architectures() {
		binary := r.the(t, "nodegate-linux-"+arch)
		list := string(require.ReadFile(t, binary+".modules"))
		info, err := buildinfo.ReadFile(binary)
		require.NoError(t, err)
		for _, m := range info.Deps {
			assert.Contains(t, list, "\tdep\t"+m.Path+"\t"+m.Version+"\t"+m.Sum+"\n", "%s: %s %s", arch, m.Path, m.Version)
		}
		content := require.ReadFile(t, binary)
		// A stripped binary still has the names of its functions, which stack traces print.
		assert.True(t, len(info.Deps) != 0 && bytes.Contains(content, []byte("nodegate/internal/host.")),
			"%s: the names of modules or functions are not in the binary", arch)
		for _, library := range []string{"testing.(*T).", "nodegate/internal/host/hosttest.", "rogpeppe/go-internal"} { // go-cmp is hclwrite's
			assert.True(t, !bytes.Contains(content, []byte(library)), "%s: the binary contains a library of the tests: %s", arch, library)
		}
	}
}

// TestGuide runs the documented commands about the release and about a tree. The first is `make dist`, which builds the release for
// these tests.
func TestGuide(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "podman")
	r := releaseMade(t)
	dir := t.TempDir()
	say(t, "cp", "-r", r.dir, dir+"/dist")
	say(t, "cp", r.public, dir+"/nodegate.pub")
	say(t, "mkdir", dir+"/bin")
	say(t, "cp", r.the(t, "nodegate-linux-amd64"), dir+"/bin/nodegate")
	say(t, "mv", tree(t), dir+"/image")
	podmanHere(t)
	ran := 0
	for _, document := range []string{"guides/bake-an-ami.md", "packages.md"} {
		text := string(require.ReadFile(t, repository+"/docs/"+document))
		for _, b := range regexp.MustCompile("(?ms)^```(\\w+ ?\\S*)\n(.*?)^```").FindAllStringSubmatch(text, -1) {
			switch b[1] {
			case "hcl node.hcl":
				write(t, dir+"/node.hcl", b[2])
			case "sh", "sh release", "sh workstation", "sh tree":
				if b[2] != "make dist\n" {
					say(t, "sh", "-euc", `cd "$1"; PATH=$1/bin:$PATH; eval "$2"`, "sh", dir, b[2])
				}
				ran++
			}
		}
	}
	assert.Equal(t, ran, 5, "ran")
}

// steady removes times from an output.
func steady(out string) string {
	return regexp.MustCompile(`[0-9.]+(µs|ms|s)\)|"(time|durationMs)": [^,]*`).ReplaceAllString(out, "TIME)")
}
