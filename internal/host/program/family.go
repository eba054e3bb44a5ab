package program

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// family is a program with all its descendants, also those that left its session. They are in a cgroup of their own if cgroup v2 gives
// one; otherwise a variable in their environment identifies them.
type family struct {
	cgroup string // its directory, or ""
	dir    *os.File
	mark   string
}

// newFamily prepares a program for its family.
func newFamily(cmd *exec.Cmd) *family {
	f := &family{mark: "NODEGATE_CHECK=" + rand.Text()}
	cmd.Env = append(cmd.Env, f.mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dir := ownCgroup() + "/nodegate-" + strings.ToLower(rand.Text())
	if !strings.HasPrefix(dir, cgroupRoot) || os.Mkdir(dir, 0o755) != nil {
		return f
	}
	if _, err := os.Stat(dir + "/cgroup.kill"); err != nil { // before Linux 5.14, or v2 is mounted elsewhere and this is a tmpfs
		_ = os.Remove(dir) // empty, and made above
		return f
	}
	f.cgroup = dir
	if f.dir, _ = os.Open(dir); f.dir != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(f.dir.Fd())
	}
	return f
}

const cgroupRoot = "/sys/fs/cgroup"

// ownCgroup returns the directory of nodegate's cgroup, or "" without cgroup v2.
func ownCgroup() string {
	text, err := os.ReadFile("/proc/self/cgroup")
	_, below, is := bytes.Cut(append([]byte("\n"), text...), []byte("\n0::"))
	if err != nil || !is {
		return ""
	}
	name, _, _ := strings.Cut(string(below), "\n")
	return filepath.Join(cgroupRoot, name)
}

// kill ends every process of the family.
func (f *family) kill() {
	if f.cgroup != "" {
		_ = os.WriteFile(f.cgroup+"/cgroup.kill", []byte("1"), 0) // the mark finds them too
	}
	const rounds = 5 // a process may fork while others are killed
	for range rounds {
		found := false
		names, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, name := range names {
			environment, _ := os.ReadFile(name)
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err == nil && pid != os.Getpid() && bytes.Contains(environment, []byte(f.mark)) {
				found = syscall.Kill(pid, syscall.SIGKILL) == nil || found
			}
		}
		if !found {
			return
		}
	}
}

// close ends the rest of the family.
func (f *family) close() {
	f.kill()
	if f.dir != nil {
		f.dir.Close()
	}
	for range 20 { // until the kernel has reaped its processes
		if f.cgroup == "" || os.Remove(f.cgroup) == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}
