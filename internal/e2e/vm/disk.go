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

// enabledUnits lists the symbolic links of the node image. It enables the units that start at boot. It masks Debian's housekeeping,
// which would change files and take time during the scenarios, SSH, which only a bake needs, and unused units. Without them a boot
// takes a sixth less.
func enabledUnits() map[string]string {
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

// Clone copies the tree to dir, which must not exist, and turns it into a node: it adds the agent, the kubelet stand-in and their units.
func (b *Base) Clone(ctx context.Context, dir string) error {
	if _, err := runProgram(ctx, copyTime, nil, "cp", "-a", "--reflink=auto", b.Tree, dir); err != nil {
		return fmt.Errorf("copying the base image: %w", err)
	}
	if err := WriteAll(rootfs, "rootfs", dir); err != nil {
		return fmt.Errorf("adding the agent and the stand-in: %w", err)
	}
	for link, to := range enabledUnits() {
		if err := Link(to, filepath.Join(dir, link)); err != nil {
			return fmt.Errorf("enabling units: %w", err)
		}
	}
	return nil
}

// WriteAll writes the files of a directory into a tree. Files that begin with #! become executable.
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

// Write replaces a file of a tree, so that neither its old mode nor a symbolic link survives.
func Write(file string, content []byte, mode fs.FileMode) error {
	if err := makeRoom(file); err != nil {
		return err
	}
	if err := os.WriteFile(file, content, mode); err != nil {
		return err
	}
	return os.Chmod(file, mode)
}

// Link makes a symbolic link in a tree and replaces an existing file.
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

// MakeDisk makes an ext4 disk of the tree, including owners and modes. The disk must not exist; the caller may remove the tree afterwards.
func MakeDisk(ctx context.Context, tree, disk string) error {
	f, err := os.OpenFile(disk, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("making a disk: %w", err)
	}
	if err := errors.Join(f.Truncate(diskSize), f.Close()); err != nil {
		return fmt.Errorf("making a disk: %w", err)
	}
	_, err = runProgram(ctx, copyTime, nil, "mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1", "-d", tree, disk)
	return err
}
