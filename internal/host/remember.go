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

// Remember prepares a host for watch, which inspects repeatedly: checks may store state in Memory,
// and a program's version is cached until its file changes. Starting kubelet for its version costs
// more than the rest of a round.
func (h *Host) Remember() {
	h.Memory = &Memory{}
	h.Kernel = &kernelCache{Kernel: h.Kernel, versions: map[string]cachedVersion{}}
}

// versionTTL bounds the age of a cached version: a wrapper script does not change when the program
// that it runs is replaced.
const versionTTL = 10 * time.Minute

type kernelCache struct {
	Kernel
	mu       sync.Mutex
	versions map[string]cachedVersion // by command line
}

type cachedVersion struct {
	file identity
	at   time.Time
	text string
}

// identity changes when a file is replaced or written to.
type identity struct {
	device, inode    uint64
	size             int64
	changed, written syscall.Timespec
}

// Version caches the output of a program, but no error.
func (k *kernelCache) Version(ctx context.Context, name string, flags ...string) (string, error) {
	file, err := identify(name)
	if err != nil {
		return k.Kernel.Version(ctx, name, flags...) // whose error is clearer
	}
	line := commandKey(name, flags)
	k.mu.Lock()
	known, is := k.versions[line]
	k.mu.Unlock()
	if is && known.file == file && time.Since(known.at) < versionTTL {
		return known.text, nil
	}
	now := cachedVersion{file: file, at: time.Now()}
	if now.text, err = k.Kernel.Version(ctx, name, flags...); err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.versions, func(_ string, s cachedVersion) bool { return time.Since(s.at) >= versionTTL })
	k.versions[line] = now
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
