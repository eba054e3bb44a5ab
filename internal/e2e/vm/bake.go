package vm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

const (
	bakeTime = 15 * time.Minute
	direct   = emulated + " root=/dev/vda rw console=ttyS0" // the node image has no boot loader
)

// Bake describes an image that Packer bakes with the repository's packer.pkr.hcl, as in docs/guides/bake-an-ami.md. It uses the
// Packer that PACKER names, or Debian's.
type Bake struct {
	Base       *Base
	Repository string // the root of the repository
	Nodegate   string // the binary
	Policy     string // the text of node.hcl
	Dir        string // a directory for all files; the caller removes it
	Memory     int    // memory of the build machine in MiB; 0 is 1024
	Words      string // more words for the build machine's kernel command line
}

// Out is the directory with the report and the manifest.
func (b Bake) Out() string { return filepath.Join(b.Dir, "baked") }

// Image is the baked disk, a qcow2.
func (b Bake) Image() string { return b.Out() + "/disk/node.qcow2" }

// openTree lets the build into the tree. It enables SSH, and a network that asks QEMU's DHCP server, but only while the build's word
// is on the command line. If the tree already has SSH host keys, nothing creates new ones at boot.
const openTree = `
mkdir "$DIR/dist" "$DIR/bin"
ln -s "$NODEGATE" "$DIR/dist/nodegate-linux-amd64"
ln -s "$REPOSITORY/packer.pkr.hcl" "$REPOSITORY/images" "$DIR"
test -z "${PACKER:-}" || ln -s "$PACKER" "$DIR/bin/packer"
printf %s "$POLICY" >"$DIR/node.hcl"
ssh-keygen -q -t ed25519 -N '' -f "$DIR/id"
install -D -m 600 "$DIR/id.pub" "$TREE/root/.ssh/authorized_keys"
printf '[Match]\nName=eth0\nKernelCommandLine=bake\n\n[Network]\nDHCP=ipv4\n' >"$TREE/etc/systemd/network/10-bake.network"
if ! ls "$TREE"/etc/ssh/ssh_host_*_key >/dev/null 2>&1; then
	mkdir -p "$TREE/etc/systemd/system/ssh.service.d"
	printf %s "$KEYGEN" >"$TREE/etc/systemd/system/ssh.service.d/keygen.conf"
fi
rm "$TREE/etc/systemd/system/ssh.service"
systemctl --root="$TREE" enable ssh.service systemd-networkd.service
`

// Run bakes a prepared tree, and returns the output of the build. The caller may remove the tree afterwards.
func (b Bake) Run(ctx context.Context, tree string) (string, error) {
	keygen, err := GuideBlock(b.Repository, "ini keygen.conf")
	if err != nil {
		return "", err
	}
	block := "sh debian" // the guide's block for Debian's Packer, or for a current one
	if os.Getenv("PACKER") != "" {
		block = "sh qemu"
	}
	build, err := GuideBlock(b.Repository, block)
	if err != nil {
		return "", err
	}
	env := []string{
		"DIR=" + b.Dir, "TREE=" + tree, "REPOSITORY=" + b.Repository, "NODEGATE=" + b.Nodegate, "POLICY=" + b.Policy, "KEYGEN=" + keygen,
	}
	if _, err := runProgram(ctx, copyTime, env, "sh", "-euc", openTree); err != nil {
		return "", fmt.Errorf("letting Packer into the tree: %w", err)
	}
	raw := filepath.Join(b.Dir, "base.img")
	if err := MakeDisk(ctx, tree, raw); err != nil {
		return "", err
	}
	if _, err := runProgram(ctx, copyTime, nil, "sh", "-euc", `qemu-img convert -O qcow2 "$1" "${1%img}qcow2"; rm "$1"`, "sh",
		raw); err != nil {
		return "", err
	}
	builder, err := json.Marshal([][]string{
		{"-kernel", b.Base.Kernel}, {"-initrd", b.Base.Initrd}, {"-append", direct + " net.ifnames=0 bake " + b.Words},
		{"-m", fmt.Sprintf("%dM", cmp.Or(b.Memory, 1024))}, {"-smp", "1"},
	})
	if err != nil {
		return "", err
	}
	env = []string{
		"PATH=" + b.Dir + "/bin:" + os.Getenv("PATH"), "PACKER_PLUGIN_PATH=" + os.Getenv("PACKER_PLUGIN_PATH"),
		"PACKER_CACHE_DIR=" + b.Dir + "/cache", "PACKER_CONFIG_DIR=" + b.Dir, "CHECKPOINT_DISABLE=1", "PACKER_NO_COLOR=1",
		"PKR_VAR_accelerator=tcg", "PKR_VAR_qemu_args=" + string(builder),
	}
	// Its own network namespace has nothing but loopback.
	return runProgram(ctx, bakeTime, env, "unshare", "--net", "sh", "-euc", `ip link set lo up; cd "$1"; eval "$2"`, "sh", b.Dir, build)
}

// GuideBlock returns the text of the guide's only block with these words.
func GuideBlock(repository, words string) (string, error) {
	text, err := os.ReadFile(repository + "/docs/guides/bake-an-ami.md")
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile("(?ms)^```"+words+"\n(.*?)^```").FindAllStringSubmatch(string(text), -1)
	if len(found) != 1 {
		return "", fmt.Errorf("the guide has %d blocks %q", len(found), words)
	}
	return found[0][1], nil
}
