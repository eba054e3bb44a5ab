package host

import (
	"context"
	"maps"
	"os"
	"sync"
	"syscall"
	"time"

	"nodegate/internal/host/program"
)

// Remember makes a host for watch, which inspects again and again: checks may keep something in Memory, and a program is asked for its
// version again only where its file is another one. Starting kubelet for that takes as much processor time as ten inspections.
func (h *Host) Remember() {
	h.Memory = &Memory{}
	h.Kernel = &kernelRemembered{Kernel: h.Kernel, said: map[string]saying{}}
}

// sayingTime is how long a saying counts: the file of a script that runs another program stays when that one is replaced.
const sayingTime = 10 * time.Minute

type kernelRemembered struct {
	Kernel
	mu   sync.Mutex
	said map[string]saying // by command line
}

type saying struct {
	file identity
	at   time.Time
	text string
}

// identity differs where a file was replaced or written to.
type identity struct {
	device, inode    uint64
	size             int64
	changed, written syscall.Timespec
}

// Version remembers what a program said, not why one failed.
func (k *kernelRemembered) Version(ctx context.Context, name string, flags ...string) (string, error) {
	file, err := identify(name)
	if err != nil {
		return k.Kernel.Version(ctx, name, flags...) // which says better what is wrong
	}
	line := tried(name, flags)
	k.mu.Lock()
	known, is := k.said[line]
	k.mu.Unlock()
	if is && known.file == file && time.Since(known.at) < sayingTime {
		return known.text, nil
	}
	now := saying{file: file, at: time.Now()}
	if now.text, err = k.Kernel.Version(ctx, name, flags...); err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.said, func(_ string, s saying) bool { return time.Since(s.at) >= sayingTime })
	k.said[line] = now
	return now.text, nil
}

func identify(name string) (identity, error) {
	path, err := program.Find(name)
	if err != nil {
		return identity{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return identity{}, err
	}
	s := info.Sys().(*syscall.Stat_t)
	return identity{device: s.Dev, inode: s.Ino, size: s.Size, changed: s.Ctim, written: s.Mtim}, nil
}
