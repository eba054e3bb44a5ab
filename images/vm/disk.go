package vm

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	err := fs.WalkDir(rootfs, "rootfs", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel("rootfs", path)
		if err != nil {
			return err
		}
		target := filepath.Join(dir, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		content, err := rootfs.ReadFile(path)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if bytes.HasPrefix(content, []byte("#!")) {
			mode = 0o755
		}
		return replace(target, content, mode)
	})
	if err != nil {
		return fmt.Errorf("adding the agent and the stand-in: %w", err)
	}
	for link, to := range enabled() {
		target := filepath.Join(dir, link)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return fmt.Errorf("enabling units: %w", err)
		}
		if err := os.RemoveAll(target); err != nil {
			return fmt.Errorf("enabling units: %w", err)
		}
		if err := os.Symlink(to, target); err != nil {
			return fmt.Errorf("enabling units: %w", err)
		}
	}
	return nil
}

// replace writes a file anew, so that neither an old mode nor a symbolic link lives on.
func replace(path string, content []byte, mode fs.FileMode) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	if err := os.WriteFile(path, content, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// MakeDisk makes an ext4 disk of the tree, owners and modes included. The disk must not exist; the tree may go afterwards.
func MakeDisk(ctx context.Context, tree, disk string) error {
	f, err := os.OpenFile(disk, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("making a disk: %w", err)
	}
	err = f.Truncate(diskSize)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("making a disk: %w", err)
	}
	_, err = run(ctx, copyTime, nil, "mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1", "-d", tree, disk)
	return err
}
