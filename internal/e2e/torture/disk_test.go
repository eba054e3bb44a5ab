//go:build torture

package torture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
)

// fileSystems are created with mkfs' defaults, but without lazy initialisation, which would write later.
var fileSystems = map[string]struct {
	mkfs  []string
	mount string
}{
	"ext4":  {[]string{"mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"}, "loop"},
	"xfs":   {[]string{"mkfs.xfs", "-q"}, "loop,nouuid"},
	"btrfs": {[]string{"mkfs.btrfs", "-q"}, "loop"},
}

const diskSize = 320 << 20 // mkfs.xfs refuses less than 300 MiB

// TestPowerCut replays the disk writes of install, upgrade and uninstall. The machine loses power after each
// flush; later writes survive or are lost at random.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "qemu-storage-daemon")
	dir := scratchDir(t)
	b := newBench(t, dir)
	var wg sync.WaitGroup
	for name := range fileSystems {
		hosttest.NeedProgram(t, "mkfs."+name)
		wg.Go(func() {
			for _, p := range phases {
				assert.NoError(t, inOwnMounts(func() error { return b.powerCuts(t, name, p) }), "%s, %s", name, p.name)
			}
		})
	}
	wg.Wait()
}

// inOwnMounts calls do in a separate mount namespace, which ends with the call.
func inOwnMounts(do func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread and its namespace end here
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = do()
		}
		result <- err
	}()
	return <-result
}

func (b *bench) powerCuts(t *testing.T, name string, p phase) error {
	dir := fmt.Sprintf("%s/%s-%s", b.dir, name, p.name)
	if err := os.MkdirAll(dir+"/mnt", 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	log, err := b.recordWrites(dir, name, p)
	if err != nil {
		return err
	}
	var flushes []int
	for i, w := range log {
		if w.flush {
			flushes = append(flushes, i)
		}
	}
	if len(flushes) < 10 {
		return fmt.Errorf("only %d flushes: the log is incomplete", len(flushes))
	}
	chosen := map[int]bool{}
	for _, f := range samplePoints(t, len(flushes), 5) {
		chosen[flushes[f]] = true
	}
	whole, part := survey{}, survey{}
	random := rand.New(rand.NewPCG(*seed, 1))
	for i, w := range log {
		if err := w.replay(dir + "/base"); err != nil {
			return err
		}
		if !chosen[i] {
			continue
		}
		whole.runPoint(t, fmt.Sprintf("%s, %s: power cut after flush at write %d", name, p.name, i), func() error {
			return b.bootAfterCut(dir, name, p, nil, i%2 == 1)
		})
		var some []loggedWrite
		for _, later := range log[i+1:] {
			if later.flush {
				break
			}
			if random.IntN(2) == 0 {
				some = append(some, later)
			}
		}
		part.runPoint(t, fmt.Sprintf("%s, %s: power cut after flush at write %d, and %d of the later writes", name, p.name, i, len(some)),
			func() error { return b.bootAfterCut(dir, name, p, some, i%2 == 1) })
	}
	whole.printCounts(t, p.name+": "+name+", power cut at a flush")
	part.printCounts(t, p.name+": "+name+", and some later writes")
	return nil
}

// recordWrites creates a file system with the tree at the start of the phase, and returns all writes of the run to its disk.
func (b *bench) recordWrites(dir, name string, p phase) (log []loggedWrite, err error) {
	base, exported := dir+"/base", dir+"/exported"
	for _, f := range []string{base, exported, dir + "/log"} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			return nil, err
		}
	}
	fs := fileSystems[name]
	if err := errors.Join(os.Truncate(base, diskSize), runCommand(append(fs.mkfs, base)...)); err != nil {
		return nil, err
	}
	if err := runCommand("mount", "-o", fs.mount, base, dir+"/mnt"); err != nil {
		return nil, err
	}
	if err := errors.Join(runCommand("cp", "-a", b.dir+"/"+p.start+"/.", dir+"/mnt"), unmount(dir+"/mnt"),
		runCommand("cp", "--sparse=always", base, dir+"/recorded")); err != nil {
		return nil, err
	}
	runtime.LockOSThread() // Pdeathsig refers to the thread that starts the daemon, and other tests end threads
	defer runtime.UnlockOSThread()
	disk := exec.Command("qemu-storage-daemon", "--blockdev", "driver=file,node-name=disk,filename="+dir+"/recorded",
		"--blockdev", "driver=file,node-name=log,filename="+dir+"/log",
		"--blockdev", "driver=blklogwrites,node-name=logged,file=disk,log=log",
		"--export", "type=fuse,id=export,node-name=logged,writable=on,mountpoint="+exported)
	disk.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := disk.Start(); err != nil {
		return nil, err
	}
	for range 100 {
		if info, err := os.Stat(exported); err == nil && info.Size() == diskSize {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	err = runCommand("mount", "-o", fs.mount, exported, dir+"/mnt")
	if err == nil {
		err = errors.Join(runCommand(b.runArgs(dir+"/mnt", p.verb, p.which)...), unmount(dir+"/mnt"))
	}
	err = errors.Join(err, disk.Process.Signal(syscall.SIGTERM), disk.Wait())
	if err != nil {
		return nil, err
	}
	return readLog(dir + "/log")
}

// bootAfterCut mounts the disk as the power cut left it, with some later writes, and judges the tree on it.
func (b *bench) bootAfterCut(dir, name string, p phase, more []loggedWrite, byUninstall bool) error {
	try := dir + "/try"
	defer os.RemoveAll(try)
	if err := runCommand("cp", "--sparse=always", dir+"/base", try); err != nil {
		return err
	}
	for _, w := range more {
		if err := w.replay(try); err != nil {
			return err
		}
	}
	if err := runCommand("mount", "-o", fileSystems[name].mount, try, dir+"/mnt"); err != nil {
		return err
	}
	return errors.Join(b.judgeTree(p, dir+"/mnt", byUninstall), unmount(dir+"/mnt"))
}

// unmount waits while another test's child keeps the file system busy. A child that was forked while this process read a file there holds
// a copy of the descriptor until it executes its program. With a new network namespace that takes a while.
func unmount(dir string) error {
	err := unix.Unmount(dir, 0)
	for deadline := time.Now().Add(time.Minute); errors.Is(err, unix.EBUSY) && time.Now().Before(deadline); err = unix.Unmount(dir, 0) {
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("unmounting %s: %w", dir, err)
	}
	return nil
}

func runCommand(args ...string) error {
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, lastLines(string(out)))
	}
	return nil
}

// loggedWrite is a write to the disk, or a flush.
type loggedWrite struct {
	at    int64
	bytes []byte
	flush bool
}

func (w loggedWrite) replay(disk string) error {
	f, err := os.OpenFile(disk, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(w.bytes, w.at)
	return errors.Join(err, f.Close())
}

// readLog reads the format of dm-log-writes (Documentation/admin-guide/device-mapper/log-writes.rst).
func readLog(name string) ([]loggedWrite, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var super struct {
		Magic, Version, Entries uint64
		Sector                  uint32
	}
	if err := binary.Read(f, binary.LittleEndian, &super); err != nil {
		return nil, err
	}
	const magic, flush, discard = 0x6a736677736872, 1, 4
	if super.Magic != magic {
		return nil, fmt.Errorf("%s: not a log of writes", name)
	}
	size := int64(super.Sector)
	at := size
	var log []loggedWrite
	for range super.Entries {
		var e struct{ Sector, Sectors, Flags, Data uint64 }
		if err := binary.Read(io.NewSectionReader(f, at, size), binary.LittleEndian, &e); err != nil {
			return nil, err
		}
		at += size
		w := loggedWrite{at: int64(e.Sector) * size, bytes: make([]byte, int64(e.Sectors)*size), flush: e.Flags&flush != 0}
		if e.Flags&discard == 0 {
			if _, err := f.ReadAt(w.bytes, at); err != nil && len(w.bytes) > 0 {
				return nil, err
			}
			at += int64(len(w.bytes))
		}
		log = append(log, w)
	}
	return log, nil
}
