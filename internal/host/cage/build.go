package cage

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
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

// bind makes a file or directory seen at another place, with the mounts below it. If it is read-only, those are not.
func (b *builder) bind(from, to string, readOnly bool) {
	b.mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
	if readOnly {
		b.mount("", to, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID, "")
	}
}

// build makes the cage's mounts, gives up all further rights, and becomes its init.
func build() int {
	runtime.LockOSThread() // rights are a thread's
	_ = unix.CloseRange(messageFD, ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC)
	_ = unix.Umask(0)
	b := &builder{}
	b.do("reading the command", json.NewDecoder(os.Stdin).Decode(&b.Spec))
	b.do("entering the network namespace", unix.Setns(networkFD, unix.CLONE_NEWNET))
	b.mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	b.files()
	b.devices()
	b.sysctls()
	b.links()
	if b.err == nil {
		b.do("entering the cage", unix.Chdir(root))
		b.do("entering the cage", unix.PivotRoot(".", "."))
		b.do("leaving the machine's files", unix.Unmount(".", unix.MNT_DETACH))
	}
	b.cover()
	null, err := os.Open("/dev/null")
	b.do("opening /dev/null", err)
	if b.err == nil {
		b.do("opening /dev/null", unix.Dup3(int(null.Fd()), 0, 0))
		b.do("giving up rights", restrict())
	}
	_ = unix.Umask(0o022)
	state := told{Hidden: slices.Concat(b.hidden, b.Outside.Hidden)}
	if b.err != nil {
		state.Error = b.err.Error()
	}
	tell(state)
	if b.err == nil {
		_, _ = unix.FcntlInt(messageFD, unix.F_SETFD, 0)
		again := slices.Concat([]string{private + "/self"}, b.Self[1:], []string{"init"}, b.Args)
		fmt.Fprintln(os.Stderr, "nodegate:", unix.Exec(again[0], again, os.Environ()))
	}
	return 1
}

func tell(t told) {
	text, _ := json.Marshal(t)
	_, _ = unix.Write(messageFD, text)
}

// files makes the cage's root: a layer in memory over each tree of the machine, and a copy of /run.
func (b *builder) files() {
	if b.err != nil {
		return
	}
	for _, dir := range []string{"", "/proc", "/sys", "/dev", "/run"} {
		b.do("writing in memory", os.Mkdir(root+dir, 0o755))
	}
	copyRun()
	b.do("writing in memory", os.Mkdir(root+private, 0o755))
	b.do("copying this program", copyFile("/proc/self/exe", root+private+"/self", 0o755))
	b.bind(root, root, false)
	entries, _ := os.ReadDir("/")
	for _, e := range entries {
		if to, err := os.Readlink("/" + e.Name()); err == nil {
			_ = os.Symlink(to, root+"/"+e.Name())
		}
	}
	var err error
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
		_ = os.MkdirAll(stage+"/up", 0o755)
		if err := copyFile(from, up, info.Mode()); err != nil {
			return err
		}
		return unix.Mount(up, root+path, "", unix.MS_BIND, "")
	}
	for _, dir := range []string{low, up, work, root + path} {
		_ = os.MkdirAll(dir, 0o755)
	}
	as(up, info)
	if err := unix.MoveMount(treesFD+i, "", unix.AT_FDCWD, low, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return err
	}
	if err := unix.Mount("", low, "", unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("overlay", root+path, "overlay", unix.MS_NODEV|unix.MS_NOSUID,
		fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,userxattr", low, up, work))
}

// as gives a copy its original's owner and permissions.
func as(path string, original fs.FileInfo) {
	owner := original.Sys().(*syscall.Stat_t)
	_ = os.Lchown(path, int(owner.Uid), int(owner.Gid))
	_ = os.Chmod(path, original.Mode())
}

// copyRun copies the regular files and links of /run but those of runtimes, up to 1 MB each and 32 MB in all.
func copyRun() {
	left, here := int64(32<<20), unix.Stat_t{}
	_ = unix.Stat("/run", &here)
	_ = filepath.WalkDir("/run", func(path string, e fs.DirEntry, err error) error {
		info, err := os.Lstat(path)
		if err != nil {
			return nil
		}
		switch mode := info.Mode(); {
		case mode.IsDir() && (info.Sys().(*syscall.Stat_t).Dev != here.Dev ||
			below(path, "/run/netns /run/user /run/containerd /run/k3s /run/docker /run/crio /run/secrets")):
			return fs.SkipDir
		case mode.IsDir():
			_ = os.Mkdir(root+path, 0o755)
		case mode&fs.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			_ = os.Symlink(target, root+path)
			return nil
		case !mode.IsRegular() || info.Size() > min(1<<20, left) || copyFile(path, root+path, 0o600) != nil:
			return nil
		}
		left -= info.Size() + 1<<10
		as(root+path, info)
		return nil
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	f, err := file.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, mode.Perm())
	if err != nil {
		return err
	}
	defer w.Close()
	_, err = io.Copy(w, io.LimitReader(f, 128<<20))
	return err
}

// devices makes /dev. The mounts are read-only: the devices can be written, and their permissions cannot.
func (b *builder) devices() {
	_ = os.MkdirAll(root+"/dev/net", 0o755)
	_ = os.Mkdir(root+"/dev/shm", 0o777|fs.ModeSticky)
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty", "net/tun"} {
		if _, err := os.Stat("/dev/" + name); err == nil {
			_ = os.WriteFile(root+"/dev/"+name, nil, 0o600)
			b.bind("/dev/"+name, root+"/dev/"+name, true)
		}
	}
	for name, to := range map[string]string{"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		_ = os.Symlink("/proc/self/"+to, root+"/dev/"+name)
	}
}

// sysctls mounts /proc, whose files belong to the machine's root, as which the command runs. Only the sysctls can be written: those
// of the network namespace, and copies of all others.
func (b *builder) sysctls() {
	const proc, sysctls = root + "/proc", root + "/proc/sys/"
	b.mount("proc", proc, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	for key, value := range b.Outside.Sysctls {
		if !below(key, "net") {
			writeSysctl(copies+key, value)
		}
	}
	for _, name := range names(sysctls) {
		if name != "net" {
			_ = os.MkdirAll(copies+name, 0o755)
			b.bind(copies+name, sysctls+name, false)
		}
	}
	b.machineSysctls(sysctls)
	b.bind(sysctls+"net", sysctls+"net", false)
	b.mount("", proc, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	for _, name := range names(proc) { // what shows the kernel, or keys
		info, err := os.Lstat(proc + "/" + name)
		if err == nil && info.Mode().IsRegular() && (info.Mode()&0o004 == 0 || below(name, "keys key-users kallsyms timer_list")) {
			b.bind(root+"/dev/null", proc+"/"+name, false)
		}
	}
}

func names(dir string) []string {
	all, _ := file.ListDir(dir)
	return all
}

// writeSysctl writes a copy of a sysctl. The command's writes give it a time.
func writeSysctl(path, text string) {
	_ = os.MkdirAll(filepath.Dir(path), 0o755)
	_ = os.WriteFile(path, []byte(text), 0o644)
	_ = os.Chtimes(path, time.Unix(0, 0), time.Unix(0, 0))
}

// machineSysctls adds a copy of each sysctl below net that only the machine's first network namespace has or may write. A file
// cannot be added to a directory of /proc: a copy covers the directory, and the files that are there are bound into the copy.
func (b *builder) machineSysctls(sysctls string) {
	machine := map[string][]string{} // by directory
	for key := range b.Outside.Sysctls {
		info, err := os.Stat(sysctls + key)
		if !below(key, "net") || err == nil && info.Mode()&0o200 != 0 {
			continue
		}
		dir := filepath.Dir(key)
		for _, err := os.Stat(sysctls + dir); err != nil && dir != "net"; _, err = os.Stat(sysctls + dir) {
			dir = filepath.Dir(dir)
		}
		machine[dir] = append(machine[dir], key)
	}
	for _, dir := range slices.Backward(slices.Sorted(maps.Keys(machine))) { // the deepest first
		for _, name := range names(sysctls + dir) {
			at := dir + "/" + name
			if info, err := os.Stat(sysctls + at); err == nil && info.IsDir() {
				_ = os.MkdirAll(copies+at, 0o755)
			} else {
				writeSysctl(copies+at, "")
			}
			if !slices.Contains(machine[dir], at) {
				b.bind(sysctls+at, copies+at, false)
			}
		}
		for _, key := range machine[dir] {
			writeSysctl(copies+key, b.Outside.Sysctls[key])
		}
		b.bind(copies+dir, sysctls+dir, false)
	}
}

// links mounts /sys, of which only the links of the network namespace can be written.
func (b *builder) links() {
	const sys, links = root + "/sys", root + "/sys/devices/virtual/net/"
	b.mount("sysfs", sys, "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	for _, name := range names(links) { // not the directory of all: its permissions are the machine's
		b.bind(links+name, links+name, false)
	}
	b.mount("", sys, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// cover hides runtimes' sockets and secrets, and puts this program in the place of systemctl and service.
func (b *builder) cover() {
	if b.err != nil {
		return
	}
	for _, dir := range strings.Fields(covered) {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			b.mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, "mode=700")
		}
	}
	units, _ := json.Marshal(b.Units)
	script := fmt.Sprintf("#!/bin/sh\nexec %s/self %s as \"${0##*/}\" \"$@\"\n", private, strings.Join(b.Self[1:], " "))
	b.do("writing in memory", os.WriteFile(private+"/known", units, 0o644))
	b.do("writing in memory", os.WriteFile(private+"/as", []byte(script), 0o755))
	for _, path := range []string{"/usr/bin/systemctl", "/bin/systemctl", "/usr/sbin/service", "/sbin/service"} {
		if to, err := filepath.EvalSymlinks(path); err == nil && !strings.Contains(to, "busybox") {
			b.bind(private+"/as", to, false)
		}
	}
}
