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

// Bake is one image that Packer makes with the repository's packer.pkr.hcl, as docs/guides/bake-an-ami.md says: with the Packer
// that PACKER names, else Debian's.
type Bake struct {
	Base       *Base
	Repository string // its root
	Nodegate   string // the binary
	Policy     string // the text of node.hcl
	Dir        string // a folder for all of it; the caller removes it
	Memory     int    // of the machine that builds, MiB; 0 is 1024
	Words      string // for the kernel's command line of the machine that builds
}

// Out is the folder with the report and the manifest.
func (b Bake) Out() string { return filepath.Join(b.Dir, "baked") }

// Image is the disk that was baked, a qcow2.
func (b Bake) Image() string { return b.Out() + "/disk/node.qcow2" }

// openTree lets the build into the tree: SSH, and a network while the build's word is on the command line, which asks QEMU's own
// DHCP server. Where the tree has SSH host keys nothing makes others at boot.
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

// Run bakes a prepared tree, boots what came out once, and returns what the build said. The tree may go afterwards.
func (b Bake) Run(ctx context.Context, tree string) (string, error) {
	keygen, err := GuideBlock(b.Repository, "ini keygen.conf")
	if err != nil {
		return "", err
	}
	block := "sh debian" // the guide's words for Debian's Packer, or for a current one
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
	if _, err := run(ctx, copyTime, env, "sh", "-euc", openTree); err != nil {
		return "", fmt.Errorf("letting Packer into the tree: %w", err)
	}
	raw := filepath.Join(b.Dir, "base.img")
	if err := MakeDisk(ctx, tree, raw); err != nil {
		return "", err
	}
	if _, err := run(ctx, copyTime, nil, "sh", "-euc", `qemu-img convert -O qcow2 "$1" "${1%img}qcow2"; rm "$1"`, "sh", raw); err != nil {
		return "", err
	}
	builder, err := json.Marshal([][]string{
		{"-kernel", b.Base.Kernel}, {"-initrd", b.Base.Initrd}, {"-append", direct + " net.ifnames=0 bake " + b.Words},
		{"-m", fmt.Sprintf("%dM", cmp.Or(b.Memory, 1024))}, {"-smp", "1"},
	})
	if err != nil {
		return "", err
	}
	tester, err := json.Marshal([]string{"--kernel", b.Base.Kernel, "--initrd", b.Base.Initrd, "--cmdline", direct})
	if err != nil {
		return "", err
	}
	env = []string{
		"PATH=" + b.Dir + "/bin:" + os.Getenv("PATH"), "PACKER_PLUGIN_PATH=" + os.Getenv("PACKER_PLUGIN_PATH"),
		"PACKER_CACHE_DIR=" + b.Dir + "/cache", "PACKER_CONFIG_DIR=" + b.Dir, "CHECKPOINT_DISABLE=1", "PACKER_NO_COLOR=1",
		"PKR_VAR_accelerator=tcg", "PKR_VAR_qemu_args=" + string(builder), "PKR_VAR_boot=true", "PKR_VAR_boot_args=" + string(tester),
	}
	// In a network namespace of its own nothing is there to be reached but loopback.
	return run(ctx, bakeTime, env, "unshare", "--net", "sh", "-euc", `ip link set lo up; cd "$1"; eval "$2"`, "sh", b.Dir, build)
}

// GuideBlock is the text of the guide's only block with these words.
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
