package vm

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

//go:embed all:rootfs
var rootfs embed.FS

const (
	copyTime = 5 * time.Minute
	diskSize = 2 << 30 // sparse; the tree takes about 350 MB of it
)

// enabled are the symbolic links of the node image: the units that start at boot, and Debian's housekeeping, which
// would change files and spend time behind the scenarios' back, switched off; so is SSH, which only a bake needs, and what nobody
// here uses: without it a boot costs a sixth less.
func enabled() map[string]string {
	links := map[string]string{
		"etc/systemd/system/sysinit.target.wants/vm-agent.service":   "/etc/systemd/system/vm-agent.service",
		"etc/systemd/system/multi-user.target.wants/kubelet.service": "/lib/systemd/system/kubelet.service",
	}
	for _, unit := range []string{
		"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service",
		"fstrim.timer", "systemd-tmpfiles-clean.timer", "ssh.service",
		"getty-static.service", "getty@tty1.service", "modprobe@.service", "systemd-update-utmp.service", "systemd-update-utmp-runlevel.service",
		"dev-hugepages.mount", "dev-mqueue.mount", "sys-fs-fuse-connections.mount", "sys-kernel-config.mount", "sys-kernel-debug.mount",
	} {
		links["etc/systemd/system/"+unit] = "/dev/null"
	}
	return links
}

// Clone copies the tree to dir, which must not exist, and makes a node of it: the agent, the kubelet stand-in, their units.
func (b *Base) Clone(ctx context.Context, dir string) error {
	if _, err := run(ctx, copyTime, nil, "cp", "-a", "--reflink=auto", b.Tree, dir); err != nil {
		return fmt.Errorf("copying the base image: %w", err)
	}
	if err := WriteAll(rootfs, "rootfs", dir); err != nil {
		return fmt.Errorf("adding the agent and the stand-in: %w", err)
	}
	for link, to := range enabled() {
		if err := Link(to, filepath.Join(dir, link)); err != nil {
			return fmt.Errorf("enabling units: %w", err)
		}
	}
	return nil
}

// WriteAll writes the files of a folder into a tree; those that name their interpreter can be run.
func WriteAll(files fs.FS, folder, tree string) error {
	return fs.WalkDir(files, folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if bytes.HasPrefix(content, []byte("#!")) {
			mode = 0o755
		}
		return Write(filepath.Join(tree, strings.TrimPrefix(path, folder)), content, mode)
	})
}

// Write writes a file of a tree anew, so that neither an old mode nor a symbolic link lives on.
func Write(file string, content []byte, mode fs.FileMode) error {
	if err := makeRoom(file); err != nil {
		return err
	}
	if err := os.WriteFile(file, content, mode); err != nil {
		return err
	}
	return os.Chmod(file, mode)
}

// Link makes a symbolic link in a tree, in place of what was there.
func Link(to, file string) error {
	if err := makeRoom(file); err != nil {
		return err
	}
	return os.Symlink(to, file)
}

func makeRoom(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.RemoveAll(file)
}

// MakeDisk makes an ext4 disk of the tree, owners and modes included. The disk must not exist; the tree may go afterwards.
func MakeDisk(ctx context.Context, tree, disk string) error {
	f, err := os.OpenFile(disk, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("making a disk: %w", err)
	}
	if err := errors.Join(f.Truncate(diskSize), f.Close()); err != nil {
		return fmt.Errorf("making a disk: %w", err)
	}
	_, err = run(ctx, copyTime, nil, "mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1", "-d", tree, disk)
	return err
}
