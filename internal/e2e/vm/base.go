package vm

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

//go:embed guest-packages
var guestPackages string

//go:embed hardened-packages
var hardenedPackages string

const (
	Suite     = "bookworm"       // the release of all trees unless stated otherwise
	oldest    = "bullseye"       // systemd 247, the oldest that nodegate is tested with
	buildTime = 30 * time.Minute // mmdebstrap takes half a minute near a mirror, and four minutes if QEMU runs the packages' scripts
)

// bootHook runs in mmdebstrap before the kernel package is installed. It builds an initrd with only the modules for the disk and the
// agent's port. It is a third of the usual size, and an emulated boot depends on the size.
const bootHook = `set -eu
mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d"
printf 'MODULES=list\nCOMPRESS=gzip\nRESUME=none\n' >"$1/etc/initramfs-tools/conf.d/vm"
printf 'virtio_pci\nvirtio_blk\nvirtio_console\ncrc32c_generic\n' >"$1/usr/share/initramfs-tools/modules.d/vm"
`

// noUdev keeps udev out of the initrd, because the modules of bootHook are enough. That saves a second or two per boot. Tested only
// with Debian 12.
const noUdev = "--dpkgopt=path-exclude=/usr/share/initramfs-tools/*/udev"

// noKeys removes the SSH host keys that the package created: otherwise all machines of the image would have the same keys.
const noKeys = `rm -f "$1"/etc/ssh/ssh_host_*`

// Base is a built Debian tree. All tests share it: never write into Tree, copy it with Clone.
type Base struct {
	Arch   Arch
	Tree   string // the root file system
	Kernel string // the kernel to boot it with
	Initrd string
	used   *os.File // a lock: the tree is not removed while any process has it open
}

// mmdebstrapOptions returns the arguments of mmdebstrap without the target. packages are added to guest-packages. from is the release,
// followed by a line for the mirror if mmdebstrap does not know it.
func mmdebstrapOptions(packages []string, from ...string) []string {
	return append([]string{
		"--mode=root", "--variant=minbase", "--quiet",
		"--include=" + strings.Join(append(Words(guestPackages), packages...), ","),
		"--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-exclude=/usr/share/man/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*",
		"--essential-hook=" + bootHook, "--customize-hook=" + noKeys,
	}, from...)
}

// Base returns the cached tree of guest-packages.
func (c Cache) Base(ctx context.Context) (*Base, error) { return c.Tree(ctx, "base") }

// Tree returns the cached tree of that name, with more packages than guest-packages. It builds the tree if it is missing or its inputs
// changed; other callers wait in the meantime. Trees of the same name with other inputs are removed.
func (c Cache) Tree(ctx context.Context, name string, packages ...string) (*Base, error) {
	return c.tree(ctx, amd64(), name, mmdebstrapOptions(packages, noUdev, Suite), "")
}

// Other is like Tree for another release of Debian, which must have the packages.
func (c Cache) Other(ctx context.Context, suite, name string, packages ...string) (*Base, error) {
	arch := amd64()
	// Exclude CMPXCHG16B (feature 141): emulated by QEMU 7.2 it sometimes leaves an address in the flags, and Linux 6.12 panics.
	arch.words += " clearcpuid=141"
	return c.tree(ctx, arch, name, mmdebstrapOptions(packages, suite), "deb http://deb.debian.org/debian "+suite+" main")
}

// Oldest returns the cached tree of guest-packages with the oldest systemd that nodegate is tested with.
func (c Cache) Oldest(ctx context.Context) (*Base, error) { return c.Other(ctx, oldest, "oldest") }

// Hardened returns the cached tree of guest-packages and hardened-packages.
func (c Cache) Hardened(ctx context.Context) (*Base, error) {
	return c.Tree(ctx, "hardened", Words(hardenedPackages)...)
}

// Foreign returns the cached tree of guest-packages for another processor.
func (c Cache) Foreign(ctx context.Context, a Arch) (*Base, error) {
	words := mmdebstrapOptions(nil, "--architectures="+a.Name, Suite)
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], "-amd64", "-"+a.Name) // the package of the kernel
	}
	return c.tree(ctx, a, a.Name, words, "")
}

func (c Cache) tree(ctx context.Context, a Arch, name string, options []string, mirror string) (*Base, error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the cache: %w", err)
	}
	held, err := Lock(filepath.Join(c.Dir, name+".lock"), syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	sum := sha256.Sum256([]byte(strings.Join(options, "\x00")))
	dir := filepath.Join(c.Dir, name+"-"+hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(dir); err == nil {
		return openBase(dir, a)
	}
	others, err := filepath.Glob(filepath.Join(c.Dir, name+"-*"))
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		if err := removeUnused(other); err != nil {
			return nil, fmt.Errorf("removing an old base image: %w", err)
		}
	}
	building := dir + ".building" // a killed build leaves this and never dir; the glob above removes it
	words := slices.DeleteFunc(append(options, building, mirror), func(word string) bool { return word == "" })
	command, as := a.builder(words)
	if _, err := runProgramAs(ctx, as, buildTime, nil, command[0], command[1:]...); err != nil {
		return nil, fmt.Errorf("building the base image: %w", err)
	}
	if _, err := openBase(building, a); err != nil {
		return nil, err
	}
	if err := os.Rename(building, dir); err != nil {
		return nil, fmt.Errorf("renaming the base image: %w", err)
	}
	return openBase(dir, a)
}

// openBase finds the kernel in a built tree and expects exactly one.
func openBase(dir string, a Arch) (*Base, error) {
	kernels, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil {
		return nil, err
	}
	if len(kernels) != 1 {
		return nil, fmt.Errorf("base image %s: found %d kernels, want one", dir, len(kernels))
	}
	version := strings.TrimPrefix(filepath.Base(kernels[0]), "vmlinuz-")
	b := &Base{Arch: a, Tree: dir, Kernel: kernels[0], Initrd: filepath.Join(dir, "boot", "initrd.img-"+version)}
	if _, err := os.Stat(b.Initrd); err != nil {
		return nil, fmt.Errorf("base image: finding its initrd: %w", err)
	}
	b.used, err = Lock(dir, syscall.LOCK_SH)
	return b, err
}

// removeUnused removes a tree unless machines of another run use it. The next change of the inputs removes it then.
func removeUnused(dir string) error {
	unused, err := Lock(dir, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unused.Close()
	return removeTree(dir)
}

// Words splits a list with one word per line; # starts a comment.
func Words(list string) []string {
	var out []string
	for line := range strings.Lines(list) {
		line, _, _ = strings.Cut(line, "#")
		out = append(out, strings.Fields(line)...)
	}
	return out
}
