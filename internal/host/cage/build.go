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
	messageFD, stageFD, networkFD, treesFD = 3, 4, 5, 6

	stage   = "/run"
	root    = stage + "/root"
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

// readOnly keeps the mounts below it as they are.
func (b *builder) readOnly(dir string) {
	b.mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// build makes the cage's mounts, gives up all further rights, and becomes its init.
func build() int {
	runtime.LockOSThread() // rights are a thread's
	_ = unix.CloseRange(messageFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	_ = unix.Umask(0)
	b, messages := &builder{}, os.NewFile(messageFD, "messages")
	b.do("reading the command", json.NewDecoder(os.Stdin).Decode(&b.Spec))
	b.do("entering the network namespace", unix.Setns(networkFD, unix.CLONE_NEWNET))
	b.mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	b.stage()
	b.devices()
	b.processes()
	b.links()
	if b.err == nil {
		b.do("entering the cage", unix.Chdir(root))
		b.do("entering the cage", unix.PivotRoot(".", "."))
		b.do("leaving the machine's files", unix.Unmount(".", unix.MNT_DETACH))
	}
	b.cover()
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	b.do("opening /dev/null", err)
	b.do("opening /dev/null", unix.Dup3(null, 0, 0))
	_ = unix.Umask(0o022)
	if b.err == nil {
		b.do("giving up rights", restrict())
	}
	state := told{Hidden: append(b.hidden, b.Outside.Hidden...)}
	if b.err != nil {
		state.Error = b.err.Error()
	}
	if err := json.NewEncoder(messages).Encode(state); err != nil || b.err != nil {
		return 1
	}
	_, _ = unix.FcntlInt(messageFD, unix.F_SETFD, 0)
	again := slices.Concat([]string{private + "/nodegate"}, b.Self[1:], []string{"init"}, b.Args)
	fmt.Fprintln(os.Stderr, "nodegate:", unix.Exec(again[0], again, os.Environ()))
	return 1
}

// stage makes the cage's root: each tree of the machine below a layer in memory, and a copy of /run.
func (b *builder) stage() {
	if b.err != nil {
		return
	}
	at := fmt.Sprintf("/proc/self/fd/%d/", stageFD)
	for _, dir := range []string{"root", "low", "up", "work", "psys", "root/proc", "root/sys", "root/dev", "root/run"} {
		b.do("writing in memory", os.Mkdir(at+dir, 0o755))
	}
	copyRun(at + "root/run")
	b.do("writing in memory", os.Mkdir(at+"root"+private, 0o755))
	b.do("copying this program", copyFile("/proc/self/exe", at+"root"+private+"/nodegate"))
	if b.err != nil {
		return
	}
	b.do("mounting the cage", unix.MoveMount(stageFD, "", unix.AT_FDCWD, stage, unix.MOVE_MOUNT_F_EMPTY_PATH))
	b.mount(root, root, "", unix.MS_BIND, "")
	entries, _ := os.ReadDir("/")
	for _, e := range entries {
		switch path := "/" + e.Name(); {
		case e.Type()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			_ = os.Symlink(to, root+path)
		case e.IsDir() && !below(path, own):
			_ = os.Mkdir(root+path, 0o755)
		}
	}
	for i, path := range b.Outside.Trees {
		if b.err == nil && layer(i, path) != nil {
			b.hidden = append(b.hidden, path)
		}
	}
	if b.err == nil && len(b.hidden) == len(b.Outside.Trees) {
		b.do("mounting a layer over the machine's directories (Linux 5.11)", layer(0, b.Outside.Trees[0]))
	}
}

func layer(i int, path string) error {
	low, up, work := fmt.Sprint(stage, "/low/", i), fmt.Sprint(stage, "/up/", i), fmt.Sprint(stage, "/work/", i)
	from := fmt.Sprint("/proc/self/fd/", treesFD+i)
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.Mode().IsRegular() { // /etc/resolv.conf of a container
		if err := copyFile(from, up); err != nil {
			return err
		}
		return unix.Mount(up, root+path, "", unix.MS_BIND, "")
	}
	for _, dir := range []string{low, up, work} {
		_ = os.Mkdir(dir, 0o755)
	}
	own := info.Sys().(*syscall.Stat_t)
	_ = os.Chown(up, int(own.Uid), int(own.Gid))
	_ = os.Chmod(up, info.Mode())
	if err := unix.MoveMount(treesFD+i, "", unix.AT_FDCWD, low, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return err
	}
	if err := unix.Mount("", low, "", unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("overlay", root+path, "overlay", unix.MS_NODEV|unix.MS_NOSUID,
		fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,userxattr", low, up, work))
}

// copyRun copies the regular files and links of /run but those of runtimes, up to 1 MB each and 32 MB in all.
func copyRun(to string) {
	left := int64(32 << 20)
	var here unix.Stat_t
	_ = unix.Stat("/run", &here)
	_ = filepath.WalkDir("/run", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return nil
		}
		is, as := info.Sys().(*syscall.Stat_t), to+strings.TrimPrefix(path, "/run")
		switch {
		case e.IsDir() && (is.Dev != here.Dev || below(path, "/run/netns /run/user /run/containerd /run/k3s /run/docker /run/crio /run/secrets")):
			return fs.SkipDir
		case e.IsDir():
			_ = os.Mkdir(as, 0o755)
		case info.Mode()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			_ = os.Symlink(target, as)
			return nil
		case !info.Mode().IsRegular() || info.Size() > min(1<<20, left) || copyFile(path, as) != nil:
			return nil
		}
		left -= info.Size() + 1<<10
		_ = os.Chown(as, int(is.Uid), int(is.Gid))
		_ = os.Chmod(as, info.Mode())
		return nil
	})
}

func copyFile(from, to string) error {
	f, err := os.OpenFile(from, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := file.Regular(f, from); err != nil {
		return err
	}
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	defer w.Close()
	_, err = io.Copy(w, io.LimitReader(f, 128<<20))
	return err
}

func (b *builder) devices() {
	_ = os.MkdirAll(root+"/dev/net", 0o755)
	_ = os.Mkdir(root+"/dev/shm", 0o777|fs.ModeSticky)
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty", "net/tun"} {
		if _, err := os.Stat("/dev/" + name); err == nil {
			_ = os.WriteFile(root+"/dev/"+name, nil, 0o600)
			b.mount("/dev/"+name, root+"/dev/"+name, "", unix.MS_BIND, "")
		}
	}
	for name, to := range map[string]string{"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		_ = os.Symlink("/proc/self/"+to, root+"/dev/"+name)
	}
}

// processes mounts /proc. Its files belong to the machine's root, as which the command runs: what can be written is covered, or a
// copy, but for the sysctls of the network namespace.
func (b *builder) processes() {
	const proc, sysctls = root + "/proc", root + "/proc/sys"
	b.mount("proc", proc, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	entries, _ := os.ReadDir(sysctls)
	for _, e := range entries {
		if e.Name() != "net" {
			copySysctls("/" + e.Name())
			b.mount(stage+"/psys/"+e.Name(), sysctls+"/"+e.Name(), "", unix.MS_BIND, "")
		}
	}
	b.machineSysctls()
	b.mount(sysctls, sysctls, "", unix.MS_BIND|unix.MS_REC, "")
	b.mount(sysctls+"/net", sysctls+"/net", "", unix.MS_BIND|unix.MS_REC, "")
	b.readOnly(sysctls)
	entries, _ = os.ReadDir(proc)
	for _, e := range entries {
		info, err := e.Info()
		path := proc + "/" + e.Name()
		switch {
		case err != nil || e.Name() == "sys" || strings.Trim(e.Name(), "0123456789") == "":
		case e.IsDir():
			b.mount(path, path, "", unix.MS_BIND, "")
			b.readOnly(path)
		case info.Mode().IsRegular() && (info.Mode()&0o222 != 0 || info.Mode()&0o004 == 0 || below(e.Name(), "keys key-users kallsyms timer_list")):
			b.mount("/dev/null", path, "", unix.MS_BIND, "")
		}
	}
}

func copySysctls(dir string) {
	_ = filepath.WalkDir(root+"/proc/sys"+dir, func(path string, e fs.DirEntry, err error) error {
		if to := stage + "/psys" + strings.TrimPrefix(path, root+"/proc/sys"); err == nil && e.IsDir() {
			_ = os.MkdirAll(to, 0o755)
		} else if err == nil {
			text, _ := file.Read(path, 64<<10)
			writeSysctl(to, string(text))
		}
		return nil
	})
}

// writeSysctl writes a copy of a sysctl. The command's writes give it a time.
func writeSysctl(path, text string) {
	_ = os.WriteFile(path, []byte(text), 0o644)
	_ = os.Chtimes(path, time.Unix(0, 0), time.Unix(0, 0))
}

// machineSysctls adds a copy of each sysctl below net that only the machine's first network namespace has or may write. A file
// cannot be added to a directory of /proc: a copy covers the directory, and the files that are there are bound into the copy.
func (b *builder) machineSysctls() {
	const sysctls, copies = root + "/proc/sys/", stage + "/psys/"
	machine := map[string][]string{} // by directory
	for key := range b.Outside.Sysctls {
		if info, err := os.Stat(sysctls + key); err != nil || info.Mode()&0o200 == 0 {
			dir := filepath.Dir(key)
			for _, err := os.Stat(sysctls + dir); err != nil && dir != "net"; _, err = os.Stat(sysctls + dir) {
				dir = filepath.Dir(dir)
			}
			machine[dir] = append(machine[dir], key)
		}
	}
	for _, dir := range slices.Backward(slices.Sorted(maps.Keys(machine))) { // the deepest first
		b.do("writing in memory", os.MkdirAll(copies+dir, 0o755))
		entries, _ := os.ReadDir(sysctls + dir)
		for _, e := range entries {
			switch at := dir + "/" + e.Name(); {
			case slices.Contains(machine[dir], at):
				continue
			case e.IsDir():
				_ = os.MkdirAll(copies+at, 0o755)
				fallthrough
			default:
				if !e.IsDir() {
					writeSysctl(copies+at, "")
				}
				b.mount(sysctls+at, copies+at, "", unix.MS_BIND|unix.MS_REC, "")
			}
		}
		for _, key := range machine[dir] {
			_ = os.MkdirAll(copies+filepath.Dir(key), 0o755)
			writeSysctl(copies+key, b.Outside.Sysctls[key])
		}
		b.mount(copies+dir, sysctls+dir, "", unix.MS_BIND|unix.MS_REC, "")
	}
}

// links mounts /sys, of which only the links of the network namespace can be written.
func (b *builder) links() {
	b.mount("sysfs", root+"/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	b.mount(root+"/sys/devices/virtual/net", root+"/sys/devices/virtual/net", "", unix.MS_BIND, "")
	b.readOnly(root + "/sys")
}

// cover hides secrets and sockets, and puts this program in the place of systemctl and service.
func (b *builder) cover() {
	for _, dir := range strings.Fields(covered) {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			b.mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, "mode=700")
		}
	}
	for _, path := range b.Outside.Sockets {
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSocket != 0 {
			b.mount("/dev/null", path, "", unix.MS_BIND, "")
		}
	}
	if b.err != nil {
		return
	}
	units, _ := json.Marshal(b.Units)
	b.do("writing in memory", os.WriteFile(private+"/known", units, 0o644))
	script := fmt.Sprintf("#!/bin/sh\nexec %s/nodegate %s as \"${0##*/}\" \"$@\"\n", private, strings.Join(b.Self[1:], " "))
	b.do("writing in memory", os.WriteFile(private+"/as", []byte(script), 0o755))
	for _, path := range strings.Fields("/usr/bin/systemctl /bin/systemctl /usr/sbin/service /sbin/service") {
		if to, err := filepath.EvalSymlinks(path); err == nil && !strings.Contains(filepath.Base(to), "box") { // a BusyBox has all names
			b.mount(private+"/as", to, "", unix.MS_BIND, "")
		}
	}
}
