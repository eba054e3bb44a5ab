package cage

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/file"
)

// Outside is the part of the machine that only its first namespaces show. In a further user namespace the kernel refuses a
// layer over a directory that has mounts below it.
type Outside struct {
	Trees   []string          // directories, one for each of Files
	Files   []*os.File        `json:"-"` // cmd.ExtraFiles of the process that calls Run
	Hidden  []string          // mounts that a cage does not show, such as network file systems
	Sysctls map[string]string // by path: kernel/panic; of net those that can be written, and none of a link
}

// Directories of /, which a cage makes for itself; runtimes' directories, which it covers; and file systems that answer at once.
const (
	own     = "/proc /sys /dev /run"
	covered = "/var/lib/kubelet/plugins /var/lib/kubelet/device-plugins /var/lib/kubelet/pod-resources /var/lib/kubelet/pods " +
		"/var/lib/kubelet/pki /etc/kubernetes/pki /var/lib/etcd /var/lib/docker /var/lib/containerd /var/lib/containers /var/lib/rancher"
	local = "ext2 ext3 ext4 xfs btrfs f2fs zfs bcachefs overlay tmpfs ramfs rootfs erofs squashfs iso9660 9p virtiofs"
)

// below reports whether a path is one of a list's directories or below it.
func below(path, list string) bool {
	return slices.ContainsFunc(strings.Fields(list), func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") })
}

// Look returns the machine as the calling process sees it. Call it in the machine's first namespaces, and close its Files.
func Look() (*Outside, error) {
	mounts, err := file.Read("/proc/self/mountinfo", 16<<20)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/")
	o, types := &Outside{Sysctls: map[string]string{}}, map[string]string{}
	for _, e := range entries {
		if path := "/" + e.Name(); e.IsDir() && !below(path, own) {
			types[path] = "ext4" // the root's answers
		}
	}
	for line := range strings.Lines(string(mounts)) {
		mount, super, _ := strings.Cut(line, " - ")
		path := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(strings.Fields(mount)[4])
		if kind := strings.Fields(super)[0]; path != "/" && kind != "vfat" && !below(path, own+" "+covered) { // vfat: the firmware's
			types[path] = kind
		}
	}
	for _, path := range slices.Sorted(maps.Keys(types)) {
		tree := -1
		if slices.Contains(strings.Fields(local), types[path]) {
			tree, _ = unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		}
		if tree < 0 {
			o.Hidden = append(o.Hidden, path)
			continue
		}
		o.Trees, o.Files = append(o.Trees, path), append(o.Files, os.NewFile(uintptr(tree), path))
	}
	_ = filepath.WalkDir("/proc/sys", func(path string, e fs.DirEntry, err error) error {
		switch dir := filepath.Base(filepath.Dir(path)); {
		case err != nil:
			return nil
		case e.IsDir() && (dir == "conf" || dir == "neigh" && e.Name() != "default" || e.Name() == "binfmt_misc"):
			return fs.SkipDir // of a link; a mount
		case !e.IsDir():
			if value, mode, _ := file.ReadMode(path, 64<<10); mode&0o200 != 0 || !below(path, "/proc/sys/net") {
				o.Sysctls[strings.TrimPrefix(path, "/proc/sys/")] = string(value)
			}
		}
		return nil
	})
	return o, err
}
