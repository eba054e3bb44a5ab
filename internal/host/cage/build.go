package cage

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/file"
)

// Descriptors of the process that builds the cage, and places. Nothing below stage is seen by the command, which has root as /.
const (
	messageFD, networkFD, treesFD = 3, 4, 5

	stage   = "/tmp"
	root    = stage + "/root"
	copies  = stage + "/sysctl/"
	private = "/run/.nodegate" // in the cage

	quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
)

type builder struct {
	Spec
	hidden []string
	err    error // the first
}

func (b *builder) do(what string, err error) {
	if b.err == nil && err != nil {
		b.err = fmt.Errorf("%s: %w", what, err)
	}
}

func (b *builder) mount(from, to, kind string, flags uintptr, options string) {
	if b.err == nil {
		b.do("mounting "+strings.TrimPrefix(to, root), unix.Mount(from, to, kind, flags, options))
	}
}

func (b *builder) bind(from, to string) { b.mount(from, to, "", unix.MS_BIND|unix.MS_REC, "") }

// readOnly keeps the mounts below it, and the flags that this namespace may not clear.
func (b *builder) readOnly(path string) {
	var is unix.Statfs_t
	_ = unix.Statfs(path, &is)
	b.mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|uintptr(is.Flags)&quiet, "")
}

// build makes the cage's mounts, gives up all further rights, and becomes its init.
func build() int {
	runtime.LockOSThread() // rights are a thread's
	_ = unix.Umask(0)
	b := &builder{}
	b.do("closing descriptors", unix.CloseRange(messageFD, ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC))
	b.do("reading the command", json.NewDecoder(os.Stdin).Decode(&b.Spec))
	b.do("entering the network namespace", unix.Setns(networkFD, unix.CLONE_NEWNET))
	b.mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) // if memory ends, the cage does first
	for _, step := range []func(){b.files, b.copyRun, b.devices, b.sysctls, b.links, b.enter, b.cover} {
		if b.err == nil {
			step()
		}
	}
	_ = unix.Umask(0o022)
	if b.err == nil {
		if os.Chdir(b.Dir) != nil {
			_ = os.Chdir("/")
		}
		b.do("writing in memory", os.WriteFile(private+"/stdin", b.Stdin, 0o600))
		b.do("giving up rights", restrict())
	}
	state := told{Hidden: slices.Concat(b.hidden, b.Outside.Hidden)}
	if b.err != nil {
		state.Error = b.err.Error()
	}
	if tell(state); b.err == nil {
		_, _ = unix.FcntlInt(messageFD, unix.F_SETFD, 0)
		again := slices.Concat([]string{private + "/nodegate"}, b.Self[1:], []string{"init"}, b.Args)
		fmt.Fprintln(os.Stderr, "nodegate:", unix.Exec(again[0], again, os.Environ()))
	}
	return 1
}

func tell(t told) {
	text, _ := json.Marshal(t)
	_, _ = unix.Write(messageFD, text)
}

// files makes the cage's root: a layer in memory over each tree of the machine.
func (b *builder) files() {
	for _, dir := range []string{"", "/proc", "/sys", "/dev", "/run"} {
		b.do("writing in memory", os.Mkdir(root+dir, 0o755))
	}
	b.bind(root, root)
	entries, err := os.ReadDir("/")
	for _, e := range entries {
		if to, err := os.Readlink("/" + e.Name()); err == nil {
			_ = os.Symlink(to, root+"/"+e.Name())
		}
	}
	for i, path := range b.Outside.Trees {
		if one := layer(i, path); one != nil {
			b.hidden, err = append(b.hidden, path), one
		}
	}
	if len(b.hidden) == len(b.Outside.Trees) {
		b.do("mounting an overlay in a user namespace (Linux 5.11)", err)
	}
}

func layer(i int, path string) error {
	low, up, work := fmt.Sprint(stage, "/low/", i), fmt.Sprint(stage, "/up/", i), fmt.Sprint(stage, "/work/", i)
	from := fmt.Sprint("/proc/self/fd/", treesFD+i)
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !info.IsDir() { // /etc/resolv.conf of a container
		if err := copyFile(from, up, info); err != nil {
			return err
		}
		return unix.Mount(up, root+path, "", unix.MS_BIND, "")
	}
	for _, dir := range []string{low, up, work, root + path} {
		_ = os.MkdirAll(dir, 0o755)
	}
	likewise(up, info)
	return cmp.Or(unix.MoveMount(treesFD+i, "", unix.AT_FDCWD, low, unix.MOVE_MOUNT_F_EMPTY_PATH),
		unix.Mount("", low, "", unix.MS_PRIVATE, ""),
		unix.Mount("overlay", root+path, "overlay", unix.MS_NODEV|unix.MS_NOSUID,
			fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,userxattr", low, up, work)))
}

// likewise gives a copy its original's owner and permissions.
func likewise(path string, original fs.FileInfo) {
	owner := original.Sys().(*syscall.Stat_t)
	_ = os.Lchown(path, int(owner.Uid), int(owner.Gid))
	_ = os.Chmod(path, original.Mode())
}

func copyFile(from, to string, original fs.FileInfo) error {
	text, err := file.Read(from, 1<<20)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
		likewise(to, original)
	}
	return err
}

// copyRun copies the regular files and links of /run but the runtimes', up to 1 MB each and 32 MB in all.
func (b *builder) copyRun() {
	left, here := int64(32<<20), unix.Stat_t{}
	_ = unix.Stat("/run", &here)
	_ = filepath.WalkDir("/run", func(path string, _ fs.DirEntry, _ error) error {
		info, err := os.Lstat(path)
		switch {
		case err != nil:
		case info.IsDir() && (info.Sys().(*syscall.Stat_t).Dev != here.Dev ||
			below(path, "/run/netns /run/user /run/containerd /run/k3s /run/docker /run/crio /run/secrets")):
			return fs.SkipDir
		case info.IsDir():
			_ = os.Mkdir(root+path, 0o755)
			likewise(root+path, info)
		case info.Mode()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			_ = os.Symlink(target, root+path)
		case info.Mode().IsRegular() && info.Size() <= left:
			if copyFile(path, root+path, info) == nil {
				left -= info.Size() + 1<<10
			}
		}
		return nil
	})
}

// devices makes /dev. The mounts are read-only: the devices can be written, and their permissions cannot.
func (b *builder) devices() {
	_ = os.MkdirAll(root+"/dev/net", 0o755)
	_ = os.Mkdir(root+"/dev/shm", 0o777|fs.ModeSticky)
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty", "net/tun"} {
		if _, err := os.Stat("/dev/" + name); err == nil {
			_ = os.WriteFile(root+"/dev/"+name, nil, 0o600)
			b.bind("/dev/"+name, root+"/dev/"+name)
			b.readOnly(root + "/dev/" + name)
		}
	}
	for name, to := range map[string]string{"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		_ = os.Symlink("/proc/self/"+to, root+"/dev/"+name)
	}
}

// sysctls mounts /proc, whose files belong to the machine's root, as which the command runs. Only the sysctls can be written: those
// of the network namespace, and copies of all others. The machine's first network namespace has further ones below net, or only it
// may write them. A file cannot be added to a directory of /proc: a copy covers it, into which the other files are bound.
func (b *builder) sysctls() {
	const proc, sysctls = root + "/proc", root + "/proc/sys/"
	b.mount("proc", proc, "proc", quiet, "")
	copied := map[string]bool{"net": true} // and the directories of copies
	for key, value := range b.Outside.Sysctls {
		info, err := os.Stat(sysctls + key)
		// nf_hooks_lwtunnel is one switch of all namespaces, which each of them may turn on.
		if !below(key, "net") || err != nil || info.Mode()&0o200 == 0 || filepath.Base(key) == "nf_hooks_lwtunnel" {
			writeSysctl(copies+key, value)
			for at := key; at != "."; at = filepath.Dir(at) {
				copied[at] = true
			}
		}
	}
	for dir := range copied {
		names, _ := file.ListDir(sysctls + dir)
		for _, name := range names {
			at := dir + "/" + name
			if copied[at] || !below(dir, "net") {
				continue
			}
			if writeSysctl(copies+at, ""); isDir(sysctls + at) {
				_ = os.Remove(copies + at)
				_ = os.Mkdir(copies+at, 0o755)
			}
			b.bind(sysctls+at, copies+at)
		}
	}
	tops, _ := file.ListDir(copies)
	for _, name := range tops {
		b.bind(copies+name, sysctls+name)
	}
	b.readOnly(proc)
	names, _ := file.ListDir(proc)
	for _, name := range names { // those that show the kernel's memory or keys
		info, err := os.Lstat(proc + "/" + name)
		if err == nil && info.Mode().IsRegular() && (info.Mode()&0o004 == 0 || below(name, "keys key-users kallsyms timer_list")) {
			b.bind(root+"/dev/null", proc+"/"+name)
		}
	}
}

// writeSysctl writes a copy of a sysctl. The command's writes give it a time.
func writeSysctl(path, text string) {
	_ = os.MkdirAll(filepath.Dir(path), 0o755)
	_ = os.WriteFile(path, []byte(text), 0o644)
	_ = os.Chtimes(path, time.Unix(0, 0), time.Unix(0, 0))
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// links mounts /sys: only the links of the network namespace can be written.
func (b *builder) links() {
	const links = root + "/sys/devices/virtual/net/"
	b.mount("sysfs", root+"/sys", "sysfs", quiet, "")
	names, _ := file.ListDir(links)
	for _, name := range names { // not the directory of all: its permissions are the machine's
		b.bind(links+name, links+name)
	}
	b.readOnly(root + "/sys")
}

// enter leaves the machine's files, and keeps this program.
func (b *builder) enter() {
	self, err := os.ReadFile("/proc/self/exe")
	b.do("copying this program", cmp.Or(err, os.Mkdir(root+private, 0o755), os.WriteFile(root+private+"/nodegate", self, 0o755)))
	b.do("entering the cage", unix.Chdir(root))
	if b.err == nil {
		b.do("entering the cage", cmp.Or(unix.PivotRoot(".", "."), unix.Unmount(".", unix.MNT_DETACH)))
	}
}

// cover hides runtimes' sockets and secrets, and puts this program in the place of systemctl and service.
func (b *builder) cover() {
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	b.do("opening /dev/null", cmp.Or(err, unix.Dup3(null, 0, 0)))
	for _, dir := range strings.Fields(covered) {
		if isDir(dir) {
			b.mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, "mode=700")
		}
	}
	units, _ := json.Marshal(b.Units)
	script := fmt.Sprintf("#!/bin/sh\nexec %s/nodegate %s as \"${0##*/}\" \"$@\"\n", private, strings.Join(b.Self[1:], " "))
	b.do("writing in memory", cmp.Or(os.WriteFile(private+"/known", units, 0o644), os.WriteFile(private+"/as", []byte(script), 0o755)))
	for _, path := range []string{"/usr/bin/systemctl", "/bin/systemctl", "/usr/sbin/service", "/sbin/service"} {
		if to, err := filepath.EvalSymlinks(path); err == nil && !strings.Contains(to, "busybox") {
			b.bind(private+"/as", to)
		}
	}
}
